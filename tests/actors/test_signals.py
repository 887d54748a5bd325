"""Programs that end by a signal close their system first."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from recado.actors import ActorSystem, SystemClosedError, blocking
from tests.feeds.io.loop import in_the_loop

ROOT = Path(__file__).resolve().parents[2]

ASYNC = """
import asyncio
from functools import partial
from recado.actors import Actor, ActorSystem

class Till(Actor[None]):
    def pre_start(self):
        print("started", flush=True)
    def post_stop(self):
        print("stopped", flush=True)

async def main():
    async with ActorSystem() as system:
        await system.spawn(Till)
        asyncio.get_running_loop().call_soon(partial(print, "waiting", flush=True))  # when the call below waits
        await system.run_until_signal()
        print("closed", flush=True)

asyncio.run(main())
"""

BLOCKING = """
import signal, threading, time
from recado.actors import Actor
from recado.actors import BlockingActorSystem

class Till(Actor[None]):
    def pre_start(self):
        print("started", flush=True)
    def post_stop(self):
        print("stopped", flush=True)

def report(before):
    while signal.getsignal(signal.SIGINT) is before:
        time.sleep(0.01)
    print("waiting", flush=True)

with BlockingActorSystem() as system:
    system.spawn(Till)
    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=report, args=(before,), daemon=True).start()
    system.run_until_signal()
    print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("program", "before"), [(ASYNC, ["started"]), (BLOCKING, ["started", "waiting"])]
)
def test_a_signal_closes_the_system(
    program: str, before: list[str], number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(2)]
        process.send_signal(number)
        rest = process.stdout.read().split()
    assert lines == ["started", "waiting"]
    assert rest == ["stopped", "closed"]
    assert process.returncode == 0


SLOW = """
class Slow(Actor[None]):
    async def post_stop(self):
        print("stopping", flush=True)
        await asyncio.sleep(4)
        print("not ended", flush=True)
"""

SLOW_ASYNC = f"""
import asyncio
from recado.actors import Actor, ActorSystem
{SLOW}
async def main():
    async with ActorSystem() as system:
        await system.spawn(Slow)
        asyncio.get_running_loop().call_soon(lambda: print("waiting", flush=True))
        await system.run_until_signal()

asyncio.run(main())
"""

SLOW_BLOCKING = f"""
import asyncio, os, signal, threading
from recado.actors import Actor
from recado.actors import BlockingActorSystem
{SLOW}
with BlockingActorSystem() as system:
    system.spawn(Slow)
    def report():
        while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            pass
        print("waiting", flush=True)
    threading.Thread(target=report, daemon=True).start()
    system.run_until_signal()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [SLOW_ASYNC, SLOW_BLOCKING])
def test_a_second_signal_ends_the_program_while_it_closes(
    program: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(number)
        rest = process.stdout.read()
    assert rest == ""
    assert process.returncode == -number


@in_the_loop
async def test_it_returns_when_something_else_has_closed_the_system_completely() -> None:
    async with ActorSystem() as system:
        closed: list[str] = []

        async def last() -> None:  # called after what is registered later
            await asyncio.sleep(0.01)
            closed.append("last")

        system.on_close(last)
        waiting = asyncio.create_task(system.run_until_signal())
        await asyncio.sleep(0)
        closing = asyncio.create_task(system.close())
        await asyncio.wait_for(waiting, 60)
        assert closed == ["last"]
        await closing
        await asyncio.wait_for(system.run_until_signal(), 60)  # it is closed already


@in_the_loop
async def test_a_system_that_was_never_opened_cannot_be_run() -> None:
    with pytest.raises(SystemClosedError, match="not open"):
        await ActorSystem().run_until_signal()


@in_the_loop
async def test_the_handlers_from_before_are_restored() -> None:
    def handler(*_: object) -> None: ...

    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.signal(number, handler) for number in numbers]
    try:
        async with ActorSystem() as system:
            running = asyncio.create_task(system.run_until_signal(*numbers))
            await asyncio.sleep(0)
            assert signal.getsignal(signal.SIGUSR1) is not handler
            signal.raise_signal(signal.SIGUSR2)
            await asyncio.wait_for(running, 60)
            assert [signal.getsignal(number) for number in numbers] == [handler, handler]
    finally:
        for number, each in zip(numbers, before, strict=True):
            signal.signal(number, each)


def test_the_blocking_system_returns_when_another_thread_has_closed_it() -> None:
    with blocking.BlockingActorSystem() as system:
        closed: list[str] = []

        async def last() -> None:
            await asyncio.sleep(0.05)
            closed.append("last")

        system._system.on_close(last)
        threading.Timer(0.05, system.close).start()
        system.run_until_signal()
        assert closed == ["last"]
        system.run_until_signal()  # it is closed already
