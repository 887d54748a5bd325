"""The event loop of a node: uvloop's or asyncio's, and how it waits.

To sleep and be woken costs a process 50 µs and more on a virtual machine, which is more than most messages
cost. A client that sends one message and waits for its reply waits for such a wake-up at every hop. So a loop
that is repeatedly woken soon after it began to sleep polls for a while before it sleeps, about as long as a
client needs to wake up and reply.
"""

from __future__ import annotations

import asyncio
import selectors
from selectors import SelectorKey
from time import perf_counter

from recado.node.config import ConfigError
from recado.node.settings import Settings

POLL_S = 250e-6
"""How long to poll before sleeping. The reply of a client to a delivery arrives after 100 to 200 µs: 50 for its
wake-up, the rest for its work. A shorter poll would end before the reply arrives, and cost the polling in
addition to the sleep."""

SHORT_WAIT_S = 300e-6
"""A wait that ends within this time is short."""

SHORT_WAITS_MIN = 8
"""Start polling after this many short waits in a row. They occur if one message is in flight at a time, or if a
few thousand a second arrive steadily. They do not occur if many messages are in flight and all processors are
busy: then polling would take CPU time away from other processes."""


class PollingSelector(selectors.DefaultSelector):
    """Polls for a moment before it sleeps while waits are short, and sleeps at once when they are not."""

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
    """Return a runner with the configured event loop: by default uvloop's if it is installed, else asyncio's.

    `polling` is for a process that does nothing else: in a thread of a program it would delay the other
    threads. Raises `ConfigError` if uvloop is configured and not installed.
    """
    choice = settings.node.loop
    if choice != "asyncio":
        try:
            import uvloop
        except ImportError:
            if choice == "uvloop":
                raise ConfigError(
                    "node.loop is uvloop, which is not installed: `pip install 'recado[fast]'`"
                ) from None
        else:
            return asyncio.Runner(loop_factory=uvloop.new_event_loop)
    # Named explicitly: the default factory would also set the loop of the calling thread.
    selector = PollingSelector() if polling else selectors.DefaultSelector()
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector))
