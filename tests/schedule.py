"""The order in which `pytest -n … --dist loadfile` distributes the test files to its workers.

pytest-xdist starts with the files that have most tests. The files that take longest have few: they start Spark, a
browser or RabbitMQ, or make thousands of requests. Started last, they let one worker run for minutes after the
others have finished.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.spark import GROUPS, group_of

# Those that take more than about 10 s; `--durations` of a run shows when another one belongs here.
LONGEST_FILES: Final = (
    "tests/console/web/test_pages.py",  # Chromium
    "tests/bench/test_feeds_siege.py",
    "tests/patterns/test_reconnection.py",
    "tests/console/web/test_use.py",
    "tests/bench/test_crash.py",
    "tests/typing/test_typing.py",  # mypy and pyright
    "tests/console/web/test_messages.py",
    "tests/e2e/test_rabbitmqadmin.py",
    "tests/console/web/test_security.py",
    "tests/e2e/test_management.py",  # RabbitMQ
    "tests/console/web/test_filled_pages.py",
    "tests/console/test_fuzz.py",
    "tests/bench/test_feeds.py",
    "tests/bench/test_management.py",
    "tests/e2e/test_permission_matrix.py",
    "tests/e2e/test_prometheus.py",
    "tests/docs/test_quotes.py",
    "tests/bench/test_patterns_siege.py",
    "tests/console/web/test_many_queues.py",
    "tests/console/web/test_provider.py",
    "tests/suites/test_client_suites.py",
    "tests/client/test_survival.py",
    "tests/e2e/test_management_tools.py",
    "tests/e2e/test_metrics.py",
    "tests/console/test_provider_sign_in.py",
)


class LongestFirst(OrderedDict[str, dict[str, bool]]):
    """The work queue of the scheduler: first the groups of Spark, then the longest files, then all others."""

    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        for scope in (*GROUPS, *LONGEST_FILES):
            if scope in self:
                return scope, self.pop(scope)
        return super().popitem(last)


def make_scheduler(config: pytest.Config, log: object) -> object:
    """Return a scheduler that keeps tests of one file together, and all tests that share a Spark."""
    scheduler: Any = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def scope_of(nodeid: str) -> str:
        file: str = file_of(nodeid)
        return group_of(config.rootpath / file) or file

    scheduler._split_scope = scope_of
    scheduler.workqueue = LongestFirst()
    made: object = scheduler
    return made
