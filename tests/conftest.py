"""What all tests have in common: the brokers, and time limits that grow with the load of the machine.

Coverage is measured only in the tests of the measured packages and of those that embed them (`COVERAGE_FOLDERS`). A
line that nothing but a test of the console or an end-to-end test reaches needs a test of its own: such a test
asserts little about it. Measuring also triples the time of tests whose work is in the measured packages; those that
restart a broker hundreds of times have the mark `no_cover`, and the lines that they reach have other tests.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import (
    authority,
    certificates,
    name,
    rabbitmq_server,
    recado_server,
    server,
    start,
)
from tests.spark import _one_spark, mark, spark
from workshop.time_limit import ScaledLimit, extend_alarm

__all__ = [
    "_one_spark",
    "authority",
    "certificates",
    "name",
    "rabbitmq_server",
    "recado_server",
    "server",
    "spark",
    "start",
]

COVERAGE_FOLDERS = {"amqp", "broker", "journal", "node", "selector", "server", "simulator"}
TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] not in COVERAGE_FOLDERS:
            item.add_marker("no_cover")
    mark(items)


@pytest.fixture(scope="module", autouse=True)
def _collect_garbage() -> Iterator[None]:
    """Report a leaked socket or file in the module that leaked it, not in a later one."""
    yield
    gc.collect()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, object, object]:
    """pytest-timeout has set its timer; a loaded machine gets more time."""
    result = yield
    extend_alarm(ScaledLimit(settings.timeout))
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.schedule import make_scheduler  # needs xdist

    return make_scheduler(config, log)
