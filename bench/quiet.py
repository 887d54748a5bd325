"""Waits until the machine has nothing else to do, so that no sample pays for what came before it.

A broker goes on working when its sample is over: RabbitMQ writes its stores, frees memory, and takes
seconds to end. Fifty publishers at recado that come right behind its sample got half the rate.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LOOK_SECONDS = 0.05

# Of all processors together; looking itself, and a loop that ticks, take some.
BUSY_SHARE = 0.05


def settle(most: float) -> None:
    """Returns when all is quiet, or after so many seconds: noise that does not end is not the brokers'."""
    deadline = time.monotonic() + most
    os.sync()  # or one broker's unwritten data would wait for the other's next fsync
    before = busy_and_all()
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        now = busy_and_all()
        busy, passed = now[0] - before[0], now[1] - before[1]
        if busy <= BUSY_SHARE * passed:
            return
        before = now


def busy_and_all() -> tuple[int, int]:
    """Ticks since the machine started, of all processors: | cpu | user | nice | system | idle | iowait | …"""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3], sum(ticks)
