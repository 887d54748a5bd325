"""Waits until the machine is idle, so that no sample is disturbed by the previous one.

A broker is still busy after its sample: RabbitMQ writes its stores, frees memory, and takes seconds to stop.
Fifty publishers measured on recado directly afterwards reached half of their rate.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LOOK_S = 0.05

# Of all processors together; polling, and event loops with timers, use some.
BUSY_SHARE = 0.05


def settle(most: float) -> None:
    """Return when the machine is idle, or after `most` seconds: longer activity is not that of the brokers."""
    deadline = time.monotonic() + most
    os.sync()  # otherwise the next fsync of one broker would write the data of the other
    before = busy_and_all()
    while time.monotonic() < deadline:
        time.sleep(LOOK_S)
        now = busy_and_all()
        busy, passed = now[0] - before[0], now[1] - before[1]
        if busy <= BUSY_SHARE * passed:
            return
        before = now


def busy_and_all() -> tuple[int, int]:
    """Return busy and total ticks of all processors: | cpu | user | nice | system | idle | iowait | …"""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3], sum(ticks)
