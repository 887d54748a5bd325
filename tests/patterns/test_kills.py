"""Flows and outboxes of real processes that are killed with SIGKILL, with SQLite and PostgreSQL."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recado.patterns.outbox import Outbox
from recado.patterns.publisher import EncodedPublish
from recado.patterns.state import StateStore, to_store
from recado.patterns.state.lease_owner import is_dead
from tests.client.running import in_a_loop
from tests.patterns.flows import encode
from tests.patterns.victim import MESSAGES_COUNT
from workshop.time_limit import scale

KILL_STEPS = (1, 3, 5, 6, 8, 10, 11, 13)
RESUME_S = 5.0
MESSAGES_OF_OUTBOX = 1500


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    url: str = request.getfixturevalue("database")
    return url


@contextmanager
def victim(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.patterns.victim", *map(str, arguments)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_flow_changes_state_once_and_loses_no_output(location: str, tmp_path: Path) -> None:
    """PFL1, PFL2, PFL3"""
    for kill_at in (*KILL_STEPS, 0):
        with victim("flow", location, tmp_path, kill_at) as process:
            status = process.wait(scale(60))
        assert status == (-signal.SIGKILL if kill_at else 0)
    published = [json.loads(line) for line in (tmp_path / "published").read_text().splitlines()]
    sums = [number * (number + 1) // 2 for number in range(1, MESSAGES_COUNT + 1)]
    assert list(dict.fromkeys(published)) == sums


async def _publish_nothing(publish: EncodedPublish) -> None:
    raise AssertionError("this process only adds")


def _read_lines(path: Path) -> list[int]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def _wait_for_lines(path: Path, count: int) -> list[int]:
    async with asyncio.timeout(scale(60)):
        while len(lines := _read_lines(path)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return lines


async def _owners(store: StateStore) -> set[str]:
    return await store.run(lambda transaction: set(transaction.leases().values()))


@in_a_loop
async def test_a_survivor_goes_on_with_the_outbox(location: str, tmp_path: Path) -> None:
    """POB1 to POB3: a dispatcher dies, and another one takes its partitions over."""
    store = to_store(location)
    await store.open()
    outbox = Outbox(store, encode=encode, publish=_publish_nothing)
    published = tmp_path / "published"
    connection: Any = psycopg.connect(location) if "://" in location else sqlite3.connect(location)
    for number in range(MESSAGES_OF_OUTBOX):
        outbox.add(connection, "q", number, key=f"k{number % 5}")
    connection.commit()
    connection.close()
    with victim("outbox", location, tmp_path) as first:
        await _wait_for_lines(published, 10)
        with victim("outbox", location, tmp_path):
            # The second one has some of the partitions when the first one dies.
            while len(await _owners(store)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            first.kill()
            first.wait()
            async with asyncio.timeout(scale(RESUME_S)):
                while any(map(is_dead, await _owners(store))):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            async with asyncio.timeout(scale(60)):
                while await outbox.oldest_age() > 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    found = await _wait_for_lines(published, MESSAGES_OF_OUTBOX)
    await store.close()
    unique = list(dict.fromkeys(found))
    assert sorted(unique) == list(range(MESSAGES_OF_OUTBOX))
    for key in range(5):
        assert [number for number in unique if number % 5 == key] == list(
            range(key, MESSAGES_OF_OUTBOX, 5)
        )
