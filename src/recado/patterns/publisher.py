"""Publishing with confirms.

Messages of all endpoints go through one channel. Each has a callback, which gets the outcome when the broker has
confirmed the message: None, or an error. The broker closes a channel because of one message (its exchange does
not exist, it is too large), and does not say which. So the unconfirmed messages are published again on the next
channel one by one, and the one that closes a channel on which it is alone gets the error.

PPU1  Every message gets exactly one outcome, and None means that the broker has taken responsibility for it.
PPU2  A mandatory message that the broker could route to no queue has the outcome `UnroutableMessageError`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import msgspec

from recado.client import (
    ChannelClosedByBrokerError,
    ClientError,
    ReturnedMessage,
    RobustChannel,
    RobustConnection,
)

from .errors import NotConfirmedError, UnroutableMessageError

log = logging.getLogger("recado.patterns")

_DRAIN_INTERVAL_COUNT = 256  # messages between two waits for the socket

OnOutcome: TypeAlias = Callable[[Exception | None], object]
_ReturnKey: TypeAlias = tuple[str, str, str]  # message id, exchange, routing key


class EncodedPublish(msgspec.Struct, frozen=True):
    """A message as it goes to the broker."""

    exchange: str
    key: str
    body: bytes
    properties: bytes
    message_id: str  # the id within `properties`
    mandatory: bool = False


class _Pending(msgspec.Struct, frozen=True):
    """A published message whose confirm has not arrived."""

    publish: EncodedPublish
    on_outcome: OnOutcome


class ConfirmedPublisher:
    """Publishes messages on a channel of its own, which is opened again if the broker closes it."""

    def __init__(
        self,
        connection: RobustConnection,
        prepare: Callable[[RobustChannel], Awaitable[object]] | None = None,
    ) -> None:
        """`prepare` is awaited with each new channel before anything is published on it."""
        self._connection = connection
        self._prepare = prepare
        self._channel: RobustChannel | None = None
        self._opening: asyncio.Task[RobustChannel] | None = None
        self._pending: dict[int, _Pending] = {}  # by sequence number of the channel
        self._suspects: deque[_Pending] = deque()  # one of these has closed a channel
        self._waiting: deque[_Pending] = (
            deque()
        )  # published while there is no channel, or while there are suspects
        self._returned: dict[_ReturnKey, list[ReturnedMessage]] = {}  # until the confirm
        self._emptied: asyncio.Future[None] | None = None  # when every message has its outcome

    @property
    def unconfirmed_count(self) -> int:
        """The number of messages without an outcome."""
        return len(self._pending) + len(self._suspects) + len(self._waiting)

    async def open(self) -> None:
        """Open the channel."""
        await self._open_channel()

    async def publish(self, publish: EncodedPublish) -> None:
        """Publish a message and wait for its confirm.

        Raises `UnroutableMessageError`, `NotConfirmedError`, `ChannelClosedByBrokerError` if the broker closed a
        channel because of this message, or the error that closed the connection for good.
        """
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.send(publish, partial(_resolve, outcome))
        await outcome

    async def publish_many(self, publishes: Sequence[EncodedPublish]) -> None:
        """Publish messages and wait for all confirms; raises the first error, after all have an outcome."""
        for error in await self.publish_each(publishes):
            if error is not None:
                raise error

    async def publish_each(
        self, publishes: Sequence[EncodedPublish]
    ) -> Sequence[BaseException | None]:
        """Publish messages and return the outcome of each: None, or an error."""
        loop = asyncio.get_running_loop()
        outcomes: list[asyncio.Future[None]] = [loop.create_future() for _ in publishes]
        for publish, outcome in zip(publishes, outcomes, strict=True):
            self.send(publish, partial(_resolve, outcome))
            if (
                self._channel is not None
                and self._channel.unconfirmed_count % _DRAIN_INTERVAL_COUNT == 0
            ):
                await self._channel.drain()
        return await asyncio.gather(*outcomes, return_exceptions=True)

    def send(self, publish: EncodedPublish, on_outcome: OnOutcome) -> None:
        """Publish a message; `on_outcome` gets its outcome: None, or an error (PPU1)."""
        pending = _Pending(publish, on_outcome)
        channel = self._channel
        if channel is None or not channel.is_open or self._suspects:
            self._waiting.append(pending)
            if channel is None or not channel.is_open:
                self._reopen()
        else:
            self._publish(channel, pending)

    def _publish(self, channel: RobustChannel, pending: _Pending) -> None:
        publish = pending.publish
        try:
            number = channel.publish(
                publish.exchange,
                publish.key,
                publish.body,
                publish.properties,
                mandatory=publish.mandatory,
            )
        except Exception as error:  # noqa: BLE001 - it is the outcome, for instance of too long a key
            pending.on_outcome(error)
        else:
            self._pending[number] = pending

    def _publish_waiting(self, channel: RobustChannel) -> None:
        """Publish the next suspect alone; when there is none, all waiting messages."""
        while channel.is_open:
            if self._suspects:
                if not self._pending:
                    self._publish(channel, self._suspects.popleft())
                return
            if not self._waiting:
                return
            self._publish(channel, self._waiting.popleft())

    # ── the channel ───────────────────────────────────────────────────────────────────────────────────────

    async def _open_channel(self) -> RobustChannel:
        channel = await self._connection.channel()
        channel.on_confirm = self._handle_confirms
        channel.on_return = self._handle_return
        channel.on_end = self._handle_end
        if self._prepare is not None:
            await self._prepare(channel)
            channel.check_open()
        self._channel = channel
        self._publish_waiting(channel)
        return channel

    def _reopen(self) -> None:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open_channel())
            self._opening.add_done_callback(self._handle_opened)

    def _handle_opened(self, task: "asyncio.Task[RobustChannel]") -> None:
        """Fail the waiting messages if no channel can be opened: the connection has ended for good."""
        if task.cancelled():
            error: BaseException | None = ClientError("the connection was closed")
        else:
            error = task.exception()
        if error is not None:
            failed = [*self._suspects, *self._waiting]
            self._suspects.clear()
            self._waiting.clear()
            for pending in failed:
                pending.on_outcome(_to_exception(error))
            self._note_outcomes()

    def _handle_end(self, error: Exception) -> None:
        """Publish unconfirmed messages on the next channel, if the broker closed only this one.

        A message that was alone on the channel has caused it, and gets the error.
        """
        pending, self._pending = list(self._pending.values()), {}
        self._channel = None
        self._returned.clear()
        if isinstance(error, ChannelClosedByBrokerError) and len(pending) != 1:
            self._suspects.extendleft(reversed(pending))
        else:
            for each in pending:
                each.on_outcome(error)
        if self._suspects or self._waiting:
            log.warning(
                "publishing again on a new channel (messages=%d error=%s)",
                len(self._suspects) + len(self._waiting),
                error,
            )
            self._reopen()
        self._note_outcomes()

    def _note_outcomes(self) -> None:
        """Tell `close` when the last message has its outcome."""
        if self._emptied is not None and not self._emptied.done() and not self.unconfirmed_count:
            self._emptied.set_result(None)

    def _handle_confirms(self, numbers: range, acked: bool) -> None:
        for number in numbers:
            pending = self._pending.pop(number, None)
            if pending is None:
                continue
            outcome: Exception | None = None
            if self._returned:
                returned = self._take_returned(pending.publish)
                if returned is not None:
                    outcome = to_unroutable(returned)
            if not acked:
                outcome = NotConfirmedError(
                    f"the broker refused a message to exchange '{pending.publish.exchange}' with key"
                    f" '{pending.publish.key}' (basic.nack): a queue is full or failed"
                )
            pending.on_outcome(outcome)
        if (self._suspects or self._waiting) and self._channel is not None:
            self._publish_waiting(self._channel)
        self._note_outcomes()

    def _handle_return(self, message: ReturnedMessage) -> None:
        message_id = message.properties.message_id
        if message_id is not None:
            key = (message_id, message.exchange, message.routing_key)
            self._returned.setdefault(key, []).append(message)

    def _take_returned(self, publish: EncodedPublish) -> ReturnedMessage | None:
        """Return the message if it was returned. Programs choose message ids, so several messages can have the same."""
        key = (publish.message_id, publish.exchange, publish.key)
        found = self._returned.get(key)
        if found is None:
            return None
        message = found.pop()
        if not found:
            del self._returned[key]
        return message

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109  what is then unconfirmed gets an error
        """Wait for the outcomes of all messages, at most `timeout` seconds, and close the channel."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.unconfirmed_count:
                    self._emptied = asyncio.get_running_loop().create_future()
                    await self._emptied
        error = NotConfirmedError(
            "the application was stopped before the broker had confirmed a message"
        )
        left = [*self._pending.values(), *self._suspects, *self._waiting]
        self._pending, self._suspects, self._waiting = {}, deque(), deque()
        for pending in left:
            pending.on_outcome(error)
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._channel is not None and self._channel.is_open:
            await self._channel.close()


def to_unroutable(message: ReturnedMessage) -> UnroutableMessageError:
    """Return the error for a returned message."""
    target = (
        f"exchange '{message.exchange}' with key '{message.routing_key}'"
        if message.exchange
        else f"queue '{message.routing_key}'"
    )
    return UnroutableMessageError(
        f"the broker could route a message to no queue: {target} ({message.reply_text})"
    )


def _resolve(outcome: "asyncio.Future[None]", error: Exception | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)


def _to_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else ClientError(str(error))
