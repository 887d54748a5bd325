"""One acknowledgement for the deliveries of many queues.

A message to a room of 500 members is delivered 500 times on one channel. To acknowledge each delivery takes a tenth
of all the processor time of the chat; acknowledging all of them with `multiple` takes nothing.

AC1  A delivery is acknowledged only after it was handled, and once.
AC2  Every handled delivery is acknowledged, at the latest `STUCK_S` after it for each rejected one before it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from recado.client import Delivery

STUCK_S: Final = 1.0
"""After this time, handled deliveries no longer wait for one before them: its consumer was cancelled, and the client
has rejected it."""


class AckWindow:
    """Collects the handled deliveries of a channel, and acknowledges those that have no unhandled one before them."""

    def __init__(self) -> None:
        self._channel: object = None
        self._next_tag = 1
        self._handled: dict[int, Delivery] = {}
        """Not acknowledged yet; the first one is at `_next_tag` unless something before it is unhandled."""
        self._timer: asyncio.Handle | None = None
        self._stuck_timer: asyncio.Handle | None = None

    def close(self) -> None:
        for timer in (self._timer, self._stuck_timer):
            if timer is not None:
                timer.cancel()

    def add(self, delivery: Delivery) -> None:
        """A delivery was handled."""
        channel = delivery.source.channel
        if channel is not self._channel:  # another connection, whose tags begin again
            if delivery.is_stale:
                return
            self._channel = channel
            self._next_tag = 1
            self._handled.clear()
        if delivery.delivery_tag < self._next_tag:
            return  # acknowledged with a later one
        self._handled[delivery.delivery_tag] = delivery
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        handled, tag = self._handled, self._next_tag
        last = None
        while tag in handled:
            last = handled.pop(tag)
            tag += 1
        self._next_tag = tag
        if last is not None:
            last.ack(multiple=True)
        if handled and self._stuck_timer is None:
            loop = asyncio.get_running_loop()
            self._stuck_timer = loop.call_later(STUCK_S, self._skip_unhandled, tag)

    def _skip_unhandled(self, tag: int) -> None:
        """Go on behind a delivery that has still not been handled.

        The event loop runs consumers in the order in which deliveries arrived. So one that was not handled long after
        a later one never will be, and the acknowledgement of the later one does it no harm.
        """
        self._stuck_timer = None
        if tag == self._next_tag and self._handled:
            self._next_tag = min(self._handled)
        self._acknowledge()
