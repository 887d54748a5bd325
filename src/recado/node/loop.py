"""The event loop of a node: uvloop's or asyncio's, and how it waits.

To sleep and be woken costs a process more than most messages do: on a virtual machine 50 µs and
more. A client that sends one message and waits for its answer pays that at every hop. So a loop
that was woken soon after it fell asleep looks a few times more before it sleeps again, for about as
long as being woken would take. Figures: a round trip through two queues took 246-313 µs without and
163-197 µs with it, where two hops through an echo server in C, which sleeps, take 200 µs.
"""

from __future__ import annotations

import asyncio
import selectors
from selectors import SelectorKey
from time import perf_counter

from recado.node.config import ConfigError
from recado.node.settings import Settings

LOOKING = 50e-6
"""Seconds of looking before falling asleep: what being woken costs, so that it can at most double."""

BRISK = 4 * LOOKING
"""Who was woken within this expects to be again; who was not goes to sleep at once."""


class Attentive(selectors.DefaultSelector):
    """Looks for a moment longer while traffic is brisk, and sleeps like any other when it is not."""

    _brisk = False

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is not None and timeout <= LOOKING:
            return super().select(timeout)
        start = perf_counter()
        while self._brisk and perf_counter() - start < LOOKING:
            if ready := super().select(0):
                return ready
        ready = super().select(timeout)
        self._brisk = perf_counter() - start < BRISK
        return ready


def new_runner(settings: Settings, *, attentive: bool = False) -> asyncio.Runner:
    """An event loop as configured: uvloop's where it is installed, unless told otherwise.

    An attentive one is for a process that does nothing else: in a program's thread it would hold up
    the others.
    """
    choice = settings.node.loop
    if choice != "asyncio":
        try:
            import uvloop
        except ImportError:
            if choice == "uvloop":
                raise ConfigError("node.loop is uvloop: `pip install 'recado[fast]'`") from None
        else:
            return asyncio.Runner(loop_factory=uvloop.new_event_loop)
    # Named although it is the default, which would also become the loop of the calling thread.
    selector = Attentive() if attentive else selectors.DefaultSelector()
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector))
