"""A connection that comes back: a bare one while it lasts, supervised, and the memory to make the next alike.

    async with connect("amqp://localhost") as connection:
        channel = await connection.channel()

`connect` fails at once if the first connection cannot be made, since that is mostly a mistake in the URL; from
then on it is restored for as long as `give_up` says, and `on_event` is told of what happens.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Self

import msgspec

from .address import Address, parse_address
from .backoff import Backoff, Patience
from .connection import Connection
from .errors import (
    CannotConnect,
    ChannelRefused,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    GaveUp,
    NotWelcome,
)
from .notices import Blocked, GivenUp, Lost, Notice, Restored, Retrying, Unblocked
from .restoring import Restoration
from .robust_channel import WINDOW, RobustChannel, raise_unless_passing
from .topology import Topology
from .waits import Waiters, Waits

log = logging.getLogger("recado.client")


def connect(
    url: str | Address,
    *,
    tls: ssl.SSLContext | None = None,
    name: str | None = None,
    on_event: Callable[[Notice], object] | None = None,
    give_up: float | None = 300.0,
    patient: bool = False,
    backoff: Backoff | None = None,
) -> "RobustConnection":
    """To be awaited, or used by `async with`.

    With `patient` a broker that is not there yet is waited for as well, until `give_up` seconds have passed
    (None: for ever); one that refuses us, as for a wrong password, is not.
    """
    address = parse_address(url) if isinstance(url, str) else url
    if name is not None:
        address = msgspec.structs.replace(address, name=name)
    chosen = msgspec.structs.replace(backoff or Backoff(), give_up=give_up)
    return RobustConnection(address, tls, on_event, chosen, patient=patient)


class RobustConnection:
    def __init__(
        self,
        address: Address,
        tls: ssl.SSLContext | None,
        on_event: Callable[[Notice], object] | None,
        backoff: Backoff,
        *,
        patient: bool,
    ) -> None:
        """Use `connect`."""
        self.address = address
        self.topology = Topology()
        self.waits = Waits()
        self.error: Exception | None = None
        self.on_event = on_event
        self._tls = tls
        self._backoff = backoff
        self._patient = patient
        self._patience = Patience(backoff)
        self._bare: Connection | None = None  # while all is restored
        self._channels: dict[RobustChannel, None] = {}
        self._waiters = Waiters()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._bare is not None

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages now; None while it does."""
        return self._bare.blocked if self._bare is not None else None

    def name_of(self, queue: str) -> str:
        """The present name of a queue that the broker had named; any other name as it is."""
        return self.topology.name_of(queue)

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────

    def __await__(self) -> Generator[None, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(self) -> Self:
        if self._supervisor is None:
            try:
                ended = await self._first()
            except CannotConnect as error:
                if not self._patient or isinstance(error, NotWelcome):
                    raise
                self._patience.lost(asyncio.get_running_loop().time())
                self._tell(Lost(error))
                ended = await self._restored(error)
            self._supervisor = asyncio.create_task(self._supervise(ended))
        return self

    async def _first(self) -> "asyncio.Future[Exception]":
        bare, ended = await self._connect()
        self._use(bare)
        return ended

    async def _connect(self) -> "tuple[Connection, asyncio.Future[Exception]]":
        ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        bare = await Connection.open(self.address, tls=self._tls, waits=self.waits)
        bare.on_blocked = self._block_changed
        bare.on_end = partial(_settle, ended)
        if bare.error is not None:
            raise bare.error
        return bare, ended

    def _use(self, bare: Connection) -> None:
        self._bare = bare
        self._waiters.wake()

    async def close(self) -> None:
        """Part in order. What is not confirmed by now is not sent again: `flush` before, where it matters."""
        if self.error is None:
            bare = self._bare
            self._end(ConnectionClosed())
            if bare is not None:
                await bare.close()
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor

    def _end(self, error: Exception) -> None:
        """For good."""
        self.error = error
        self._bare = None
        for channel in list(self._channels):
            channel.end(error)
        self._waiters.wake()

    # ── supervision ───────────────────────────────────────────────────────────────────────────────────────

    async def _supervise(self, ended: "asyncio.Future[Exception]") -> None:
        loop = asyncio.get_running_loop()
        while True:
            lost = await ended
            if self.error is not None:
                return
            self._bare = None
            self._patience.lost(loop.time())
            self._tell(Lost(lost))
            try:
                ended = await self._restored(lost)
            except GaveUp as error:
                gave_up = error
            except Exception as fault:
                # One of ours. Without its supervisor nothing would come back, nor anybody be told.
                log.exception("a connection to %s cannot be restored", self.address)
                patience = self._patience
                gave_up = GaveUp(patience.since(loop.time()), patience.attempts, fault)
            else:
                continue
            self._end(gave_up)
            self._tell(GivenUp(gave_up))
            return

    async def _restored(self, error: Exception) -> "asyncio.Future[Exception]":
        """Try until it succeeds; `GaveUp` when it has taken too long."""
        loop, patience = asyncio.get_running_loop(), self._patience
        while True:
            delay = patience.delay(loop.time(), random.random())
            if delay is None:
                raise GaveUp(patience.since(loop.time()), patience.attempts - 1, error) from error
            self._tell(Retrying(patience.attempts, delay, error))
            await asyncio.sleep(delay)
            try:
                return await self._attempt()
            except (CannotConnect, ConnectionEnded, ChannelRefused) as failure:
                error = failure

    async def _attempt(self) -> "asyncio.Future[Exception]":
        loop, patience = asyncio.get_running_loop(), self._patience
        bare, ended = await self._connect()
        try:
            restoration = Restoration(bare, self.topology, self._tell)
            await restoration.declare()
            await restoration.resume(list(self._channels))
        except BaseException as failure:
            # As if it had broken: to those who are on it already, a close would be the end for good.
            bare.abort(ConnectionLost(f"not all could be restored: {failure}"))
            await bare.close()
            raise
        patience.restored(loop.time())
        self._use(bare)
        seconds = patience.since(loop.time())
        self._tell(Restored(patience.attempts, seconds, restoration.renamed, restoration.repeated))
        return ended

    def _block_changed(self, reason: str | None) -> None:
        self._tell(Unblocked() if reason is None else Blocked(reason))

    def _tell(self, notice: Notice) -> None:
        """A hook that fails is no reason to stop."""
        if self.on_event is not None:
            try:
                self.on_event(notice)
            except Exception:
                log.exception("on_event failed for %s", notice)

    # ── channels ──────────────────────────────────────────────────────────────────────────────────────────

    async def channel(self, *, confirms: bool = True, window: int = WINDOW) -> RobustChannel:
        """A new channel; at most `window` bytes, about, wait for confirms before `drain` waits."""
        while True:
            bare = await self._ready()
            channel = RobustChannel(self, confirms=confirms, window=window)
            try:
                below = await bare.channel(confirms=confirms)
            except ConnectionEnded as error:
                raise_unless_passing(error)
                continue
            channel.prepare(below)
            channel.resume(below)
            self._channels[channel] = None
            return channel

    def forget(self, channel: RobustChannel) -> None:
        """It has ended."""
        self._channels.pop(channel, None)

    def consumer_left(self, queue: str) -> None:
        name = self.name_of(queue)
        others = (each for channel in self._channels for each in channel.consumers.values())
        if all(self.name_of(each.queue) != name for each in others):
            self.topology.consumer_left(name)

    async def _ready(self) -> Connection:
        while True:
            if self.error is not None:
                raise self.error.with_traceback(None)
            if self._supervisor is None:
                raise ValueError("await the connection first: connection = await connect(url)")
            if self._bare is not None and self._bare.error is None:
                return self._bare
            await self._waiters.wait()


def _settle(ended: "asyncio.Future[Exception]", error: Exception) -> None:
    if not ended.done():  # nobody waits for it once the supervisor is gone
        ended.set_result(error)
