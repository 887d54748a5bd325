"""The watchdog: a handler that blocks the event loop is logged, with its actor and the line it is at."""

from __future__ import annotations

import asyncio
import bdb
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from recado.actors import Actor, ActorSystem, Message
from recado.actors.dispatchers import FixedPool
from recado.actors.runtime import watchdog
from tests.feeds.io.loop import in_the_loop, until

ROOT = Path(__file__).resolve().parents[3]

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
            time.sleep(0.01)  # it blocks the loop, which is what is tested


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
            time.sleep(0.4)  # blocks a thread of the pool for longer than the limit
            return True

    async with FixedPool(1) as pool, ActorSystem(dispatcher=pool) as system:
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
    before = watchdogs()
    async with ActorSystem("a"):
        async with ActorSystem("b"):
            assert len(watchdogs() - before) == 1
        assert len(watchdogs() - before) == 1
    await until(lambda: not watchdogs() - before)


def watchdogs() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "recado watchdog"}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)  # no loop runs here that could wait
    assert condition()


class Sleep(Message[bool]):
    seconds: float


class Sleeper(Actor[Sleep]):
    def receive(self, message: Sleep) -> bool:
        time.sleep(message.seconds)  # the blocking handler itself
        return True


def test_a_loop_that_is_closed_before_its_system_ends_its_watchdog() -> None:
    before = watchdogs()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ActorSystem().__aenter__())
    assert len(watchdogs() - before) == 1
    loop.close()
    wait_until(lambda: not watchdogs() - before)
    assert loop not in watchdog._watchdogs


@pytest.fixture
def patient(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For handlers that must not be reported, also if the machine is loaded."""
    monkeypatch.setattr(watchdog, "BLOCKED_S", 0.3)


@pytest.mark.usefixtures("patient")
def test_a_loop_that_was_not_run_for_a_while_has_not_blocked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with asyncio.Runner() as runner:
        system = ActorSystem()
        runner.run(system.__aenter__())
        sleeper = runner.run(system.spawn(Sleeper))
        time.sleep(0.8)  # the loop does not run: no beats
        assert runner.run(sleeper.ask(Sleep(0.06)))
        runner.run(system.close())
    assert BLOCKED not in caplog.text


@pytest.mark.usefixtures("patient")
def test_the_watchdog_of_one_loop_does_not_report_actors_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with asyncio.Runner() as first, asyncio.Runner() as second:
        paused, system = ActorSystem("paused"), ActorSystem("running")
        first.run(paused.__aenter__())
        first.get_loop().is_running = lambda: True  # type: ignore[method-assign]
        second.run(system.__aenter__())
        sleeper = second.run(system.spawn(Sleeper))
        for _ in range(16):
            assert second.run(sleeper.ask(Sleep(0.06)))
        second.run(system.close())
        del first.get_loop().is_running
        first.run(paused.close())
    assert BLOCKED not in caplog.text


@pytest.mark.usefixtures("patient")
@in_the_loop
async def test_a_handler_is_not_reported_for_what_ran_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ActorSystem() as system:
        sleepers = [await system.spawn(Sleeper) for _ in range(3)]
        time.sleep(1.2)  # noqa: ASYNC251  it blocks the loop
        for sleeper in sleepers:
            sleeper.tell(Sleep(0.06))
        await sleepers[-1].ask(Sleep(0), timeout=60)
    assert BLOCKED not in caplog.text


@in_the_loop
async def test_short_handlers_that_block_together_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ActorSystem() as system:
        sleeper = await system.spawn(Sleeper)
        for _ in range(10):  # handled in one turn
            sleeper.tell(Sleep(0.06))
        await sleeper.ask(Sleep(0), timeout=60)
    assert BLOCKED in caplog.text


@in_the_loop
async def test_a_handler_in_a_debugger_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Debugger(bdb.Bdb):
        def user_line(self, frame: FrameType) -> None:
            time.sleep(0.4)
            self.set_continue()

    class Debugged(Actor[Sleep]):
        def receive(self, message: Sleep) -> bool:
            traced = sys.gettrace()
            Debugger().set_trace()
            time.sleep(0)
            sys.settrace(traced)
            return True

    async with ActorSystem() as system:
        debugged = await system.spawn(Debugged)
        assert await debugged.ask(Sleep(0), timeout=60)
    assert BLOCKED not in caplog.text


STOPPED = """
import asyncio, logging, os, signal, subprocess, sys, time
from recado.actors import Actor, ActorSystem, Message

logging.basicConfig(level=logging.WARNING, stream=sys.stdout)

class Stop(Message[bool]):
    pass

class Stopper(Actor[Stop]):
    def receive(self, message):
        subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.6)  # it goes on working, for less than a second
        return True

async def main():
    async with ActorSystem() as system:
        stopper = await system.spawn(Stopper)
        print(await stopper.ask(Stop(), timeout=60), flush=True)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_has_not_blocked() -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["True"], done.stdout + done.stderr
