"""The watchdog: a handler that blocks the event loop is logged, with its actor and the line it is at."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from recado.actors import Actor, ActorSystem, Message
from recado.actors.dispatchers import Pool
from recado.actors.running import watchdog
from tests.feeds.rim.loop import in_the_loop, until

BLOCKED = "handler blocks the event loop"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(watchdog, "BEAT_INTERVAL_S", 0.05)
    monkeypatch.setattr(watchdog, "BLOCKED_S", 0.1)
    caplog.set_level(logging.WARNING, "recado.actors")


class Block(Message[None]):
    pass


class Blocked:
    """Blocks until the warning is in the log."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while BLOCKED not in self.caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)


class Blocker(Actor[Block]):
    def __init__(self, blocked: Blocked) -> None:
        self.blocked = blocked

    def receive(self, message: Block) -> bool:
        self.blocked.wait()
        return True


class AsyncBlocker(Actor[Block]):
    def __init__(self, blocked: Blocked) -> None:
        self.blocked = blocked

    async def receive(self, message: Block) -> bool:
        await asyncio.sleep(0)
        self.blocked.wait()
        return True


@pytest.mark.parametrize("kind", [Blocker, AsyncBlocker])
@in_the_loop
async def test_a_handler_that_blocks_is_logged_while_it_does(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with ActorSystem() as system:
        blocker = await system.spawn(lambda: kind(Blocked(caplog)), name="blocker")
        await blocker.ask(Block(), timeout=120)
    (warning,) = (line for line in caplog.messages if BLOCKED in line)
    assert f"actor={blocker}" in warning
    assert "test_watchdog.py" in warning
    assert "in wait" in warning


@in_the_loop
async def test_a_handler_in_a_thread_blocks_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting(Actor[Block]):
        def receive(self, message: Block) -> bool:
            time.sleep(0.4)
            return True

    async with Pool(1) as pool, ActorSystem(dispatcher=pool) as system:
        waiting = await system.spawn(Waiting)
        await waiting.ask(Block(), timeout=60)
    assert BLOCKED not in caplog.text


@in_the_loop
async def test_code_that_is_no_handler_is_not_blamed_on_an_actor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ActorSystem() as system:
        await system.spawn(lambda: Blocker(Blocked(caplog)))
        time.sleep(0.4)  # noqa: ASYNC251  it blocks the loop
    assert BLOCKED not in caplog.text


@in_the_loop
async def test_systems_of_one_loop_share_a_watchdog_that_ends_with_the_last() -> None:
    def watching() -> int:
        return sum(thread.name == "recado watchdog" for thread in threading.enumerate())

    before = watching()
    async with ActorSystem("a"):
        async with ActorSystem("b"):
            assert watching() == before + 1
        assert watching() == before + 1
    await until(lambda: watching() == before)
