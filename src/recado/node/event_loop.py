"""The event loop of a node: uvloop's or asyncio's, and how it waits.

To sleep and be woken costs a process more than most messages do: on a virtual machine 50 µs and
more. A client that sends one message and waits for its answer pays that at every hop. So a loop
that is woken again and again soon after it fell asleep looks for a while before it sleeps, for as
long as somebody takes who is woken, does a little and answers.
"""

from __future__ import annotations

import asyncio
import selectors
from selectors import SelectorKey
from time import perf_counter

from recado.node.config import ConfigError
from recado.node.settings import Settings

POLL_S = 250e-6
"""Seconds of looking before falling asleep. The answer to what a broker passed on comes after 100 to 200 µs: 50
to be woken, the rest to make it. Whoever gives up before has looked in vain, and pays for both."""

SHORT_WAIT_S = 300e-6
"""Seconds, within which a wait is a short one."""

SHORT_WAITS_MIN = 8
"""Short waits in a row, after which another is expected. So many come where one message is under way at a time,
or a few thousand a second come steadily: not where many are under way and keep every processor busy, which
looking would take away from them."""


class PollingSelector(selectors.DefaultSelector):
    """Looks for a moment longer while traffic is brisk, and sleeps like any other when it is not."""

    _short_waits = 0  # in a row

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is not None and timeout <= POLL_S:
            return super().select(timeout)
        start = perf_counter()
        while self._short_waits >= SHORT_WAITS_MIN and perf_counter() - start < POLL_S:
            if ready := super().select(0):
                return ready
        ready = super().select(timeout)
        self._short_waits = self._short_waits + 1 if perf_counter() - start < SHORT_WAIT_S else 0
        return ready


def new_runner(settings: Settings, *, polling: bool = False) -> asyncio.Runner:
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
    selector = PollingSelector() if polling else selectors.DefaultSelector()
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector))
