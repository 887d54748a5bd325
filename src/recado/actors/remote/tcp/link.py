"""Links over TCP: one that we make and make again, and one that a peer made.

L1  While a link is not up, frames wait, as many bytes as the limit says. When an attempt to connect has failed,
    those that waited for it are returned: nobody waits longer than one attempt and the delay before it. So are
    those that wait when the link is closed.
L2  A link that we made is gone only when it was closed, or when nothing answered for as long as `give_up` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from recado.actors.remote.faults import Gone
from recado.actors.remote.occurrences import BridgeDown, BridgeGone, BridgeHealed, BridgeLost
from recado.actors.remote.transport import Full, Receiver

from .wire import Wire

log = logging.getLogger("recado.actors")

DELAY_FIRST: Final = 0.05  # seconds; then twice as long each time


class Settings(Protocol):
    @property
    def connect_timeout(self) -> float: ...
    @property
    def reconnect_delay(self) -> float: ...
    @property
    def give_up(self) -> float: ...
    @property
    def report_interval(self) -> float: ...
    @property
    def hold_limit(self) -> int: ...


class TcpLink:
    """What the two kinds have in common: room, and an end."""

    lasting = False

    def __init__(self, peer: str, receiver: Receiver, hold_limit: int) -> None:
        self.peer = peer
        self._receiver = receiver
        self._hold_limit = hold_limit
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[None]] = []
        self.wire: Wire | None = None
        self.end: str | None = None  # why there is nothing any more

    @property
    def is_up(self) -> bool:
        return self.end is None

    def post(self, frame: bytes) -> None:
        if self.end is not None:
            raise Gone(self.end)
        wire = self.wire
        if wire is None or self.held + len(frame) > self._hold_limit:
            self._hold(frame)
        else:
            wire.post(frame)

    @property
    def held(self) -> int:
        return self.wire.queued if self.wire is not None else 0

    def _hold(self, frame: bytes) -> None:
        raise Full(f"{self.held} bytes wait for {self.peer or 'a client'} already")

    async def room(self) -> None:
        while self.held > self._hold_limit // 2:
            await self._change()
        if self.end is not None:
            raise Gone(self.end)

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def ready(self) -> None:
        if self._waiters and (self.end is not None or self.held <= self._hold_limit // 2):
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def arrived(self, frames: list[bytes], *, proved: bool) -> None:
        if proved:
            self._receiver.received_together(self, frames)
        else:
            self._receiver.received_unproved(self, frames)

    def pause_reading(self) -> None:
        if self.wire is not None:
            self.wire.pause_reading()

    def resume_reading(self) -> None:
        if self.wire is not None:
            self.wire.resume_reading()

    def close(self) -> None:
        if self.end is None:
            self.end = "closed"
        if self.wire is not None:
            self.wire.close()
        self.ready()


class AcceptedLink(TcpLink):
    """A peer came to us. We cannot go to it: when it is lost, it is gone."""

    def __init__(
        self, receiver: Receiver, hold_limit: int, forget: Callable[[AcceptedLink], None]
    ) -> None:
        super().__init__("", receiver, hold_limit)
        self._forget = forget

    def opened(self) -> None:
        pass  # it is kept if a frame comes, too

    def ended(self, reason: str) -> None:
        closed = self.end is not None
        self.end = self.end or reason
        self._forget(self)
        self.ready()
        if not closed:
            self._receiver.gone(self, reason)


class ConnectingLink(TcpLink):
    """We go to the peer, and again when we lost it."""

    def __init__(
        self,
        peer: str,
        address: Callable[[], tuple[str, int]],
        receiver: Receiver,
        settings: Settings,
        make: Callable[[ConnectingLink], Wire],
    ) -> None:
        super().__init__(peer, receiver, settings.hold_limit)
        self._name = f"client of {peer}"
        self._address = address
        self._settings = settings
        self._make = make
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._open = False  # whether the other end has answered as a node does
        self._was_lost = False
        self._delay = 0.0  # before the next attempt
        self._down_since = self._reported_at = self._loop.time()
        self.attempts: asyncio.Task[None] | None = None  # while there is no connection
        self._go()

    @property
    def is_up(self) -> bool:
        return self._open

    @property
    def held(self) -> int:
        return self._waiting_bytes if self.wire is None else self.wire.queued

    def _hold(self, frame: bytes) -> None:
        if self.wire is not None or self._waiting_bytes + len(frame) > self._hold_limit:
            super()._hold(frame)
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)

    # ── getting there ─────────────────────────────────────────────────────────────────────────────────────

    def _go(self) -> None:
        if self.end is not None:  # whoever was told of the loss has closed it
            return
        self.attempts = self._loop.create_task(self._connect(), name=f"link to {self.peer}")

    async def _connect(self) -> None:
        while self.end is None:
            if self._delay:
                if self._loop.time() - self._down_since >= self._settings.give_up:
                    self._give_up()
                    return
                await asyncio.sleep(self._delay)
            self._delay = min(max(2 * self._delay, DELAY_FIRST), self._settings.reconnect_delay)
            try:
                async with asyncio.timeout(self._settings.connect_timeout):
                    host, port = self._address()
                    _, wire = await self._loop.create_connection(
                        lambda: self._make(self), host, port
                    )
            except (OSError, UnicodeError) as error:  # the latter by what is no name of a host
                self._failed(str(error) or "nobody answered in time")
            else:
                if not wire.gone.done():
                    self._up(wire)
                    return
                self._failed("it hung up")

    def _up(self, wire: Wire) -> None:
        self.attempts = None
        self.wire = wire
        for frame in self._drop_waiting():
            wire.post(frame)
        self.ready()

    def opened(self) -> None:
        self._open = True
        self._delay = DELAY_FIRST
        if self._was_lost:
            self._was_lost = False
            self._receiver.happened(BridgeHealed(self._name))
            self._receiver.healed(self)

    async def emptied(self) -> None:
        """Wait while something waits for hands to be shaken: then it is sent, or returned."""
        while self.held and not self._open and self.end is None:
            await self._change()

    def _failed(self, reason: str) -> None:
        if not self._was_lost:
            self._lose(reason)
        else:
            self._report(reason)
        self._give_back(self._drop_waiting(), reason)
        self.ready()

    def _give_back(self, frames: list[bytes], reason: str) -> None:
        for frame in frames:
            self._receiver.returned(self, frame, reason)

    def _report(self, reason: str) -> None:
        now = self._loop.time()
        if now - self._reported_at >= self._settings.report_interval:
            self._reported_at = now
            seconds = now - self._down_since
            log.warning(
                "link still down, reconnecting (node=%s down_s=%.0f give_up=%g): %s",
                self.peer, seconds, self._settings.give_up, reason,
            )  # fmt: skip
            self._receiver.happened(BridgeDown(self._name, seconds, reason))

    def _lose(self, reason: str) -> None:
        self._was_lost = True
        self._reported_at = self._loop.time()
        self._receiver.happened(BridgeLost(self._name, reason))
        self._receiver.lost(self, reason)

    def _drop_waiting(self) -> list[bytes]:
        frames = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return frames

    # ── losing it ─────────────────────────────────────────────────────────────────────────────────────────

    def ended(self, reason: str) -> None:
        wire, self.wire = self.wire, None
        if wire is None:  # `_connect` will find out
            return
        if self.end is not None:
            self._give_back(wire.unsent(), self.end)
            return
        for frame in wire.unsent():
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
        if self._open:
            self._open = False
            self._down_since = self._loop.time()
            self._lose(reason)
        else:
            self._failed(reason)
        if self.attempts is None:
            self._go()

    def _give_up(self) -> None:
        self.end = f"no answer for {self._settings.give_up:g} s (give_up)"
        self.ready()
        log.error("link given up (node=%s): %s", self.peer, self.end)
        self._receiver.happened(BridgeGone(self._name, self.end))
        self._receiver.gone(self, self.end)

    def close(self) -> None:
        if self.attempts is not None:
            self.attempts.cancel()
        super().close()
        self._give_back(self._drop_waiting(), "closed")
