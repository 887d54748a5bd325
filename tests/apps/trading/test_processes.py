"""The processes of a run: they say what they do, end when asked to, and their failure is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recado.apps.trading.processes import ProcessFailedError, RecadoProcess, run_process


def is_there(process: RecadoProcess) -> bool:
    return Path(f"/proc/{process.pid}").exists()


def test_it_says_what_it_does_and_ends_with_the_block() -> None:
    async def work() -> RecadoProcess:
        async with run_process("network", "trading", "network", "127.0.0.1:1") as way:
            assert (await way.read_json())["port"] > 0
            assert way.cpu_seconds() > 0
            assert is_there(way)
        return way

    assert not is_there(asyncio.run(work()))


def test_one_that_fails_is_told_by_its_name() -> None:
    async def work() -> None:
        async with run_process("network", "trading", "network", "nowhere") as way:
            await way.read_json()

    with pytest.raises(
        ProcessFailedError, match=r"the network ended with status 2: .*expected HOST:PORT"
    ):
        asyncio.run(work())


def test_it_ends_too_when_something_else_fails() -> None:
    started: list[RecadoProcess] = []

    async def work() -> None:
        async with run_process("network", "trading", "network", "127.0.0.1:1") as way:
            started.append(way)
            await way.read_json()
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(work())
    assert not is_there(started[0])
