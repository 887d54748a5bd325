"""Programs that end by a signal close their system first."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ASYNC = """
import asyncio
from functools import partial
from recado.actors import Actor, ActorSystem

class Till(Actor[None]):
    def started(self):
        print("started", flush=True)
    def stopped(self):
        print("stopped", flush=True)

async def main():
    async with ActorSystem() as system:
        await system.spawn(Till)
        system.loop.call_soon(partial(print, "waiting", flush=True))  # when the call below waits
        await system.run_until_signal()
        print("closed", flush=True)

asyncio.run(main())
"""

BLOCKING = """
import signal, threading, time
from recado.actors import Actor
from recado.actors.blocking import ActorSystem

class Till(Actor[None]):
    def started(self):
        print("started", flush=True)
    def stopped(self):
        print("stopped", flush=True)

def report(before):
    while signal.getsignal(signal.SIGINT) is before:
        time.sleep(0.01)
    print("waiting", flush=True)

with ActorSystem() as system:
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
