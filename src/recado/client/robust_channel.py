"""A channel that outlives its connection: a bare channel while there is one, and the memory for the next.

X1  What was published with confirms is kept until the broker confirms it, and sent again on each new
    connection, in order and before anything newer. So each arrives at least once, first arrivals in order.
X2  Calls wait while there is no connection, and those that it broke under are made again.
X3  What the broker refuses is never repeated: the channel ends with its error, as a bare one does.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

import msgspec

from recado.amqp import methods as m
from recado.amqp.properties import Properties

from .channel import Channel
from .commands import Commands, M
from .consumer import Consumer
from .errors import (
    ChannelClosed,
    ChannelRefused,
    ClosedByBroker,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
)
from .messages import Delivery, Returned
from .outstanding import Outstanding
from .rendering import check_publish, property_bytes
from .waits import ConfirmWaits, OnConfirm, Waiters

if TYPE_CHECKING:
    from .robust import RobustConnection

WINDOW = 32 << 20  # bytes
_FORCED = 320  # the broker's operator, or its end, closed the connection; nothing that we sent


class RobustConsumer(Consumer):
    """Goes on with the next connection; what was not handed over of the last one comes again."""

    def __init__(self, owner: "RobustChannel", method: m.BasicConsume) -> None:
        super().__init__(method.consumer_tag, method.queue, no_ack=method.no_ack)
        self.method = method
        self._owner = owner

    def channel_ended(self, error: Exception) -> None:
        resuming = self._owner.is_resuming and isinstance(error, ChannelRefused)
        if is_passing(error) or resuming:  # then it is whoever restores the channel that decides
            self.detach()
        else:
            self._owner.forget(self)
            super().channel_ended(error)

    def give_up(self, error: Exception) -> None:
        """It cannot be resumed."""
        self._owner.forget(self)
        self.fail(error)

    async def cancel(self) -> None:
        self._owner.forget(self)
        try:
            await super().cancel()
        except ConnectionEnded as error:
            if not is_passing(error):
                raise


class RobustChannel(Commands[RobustConsumer]):
    """Made by `RobustConnection.channel`."""

    def __init__(self, connection: "RobustConnection", *, confirms: bool, window: int) -> None:
        super().__init__()
        self.connection = connection
        self.window = window
        self.error: Exception | None = None
        self.on_confirm: OnConfirm | None = None
        self.on_return: Callable[[Returned], object] | None = None
        self.outstanding = Outstanding() if confirms else None
        self.consumers: dict[str, RobustConsumer] = {}
        self.prefetch: dict[bool, m.BasicQos] = {}
        self._bare: Channel | None = None
        self._waiters = Waiters()
        self._repeating = False  # there is a connection, and older messages go first
        self._last_queue = ""
        if self.outstanding is not None:
            self._waits = ConfirmWaits(self.outstanding.confirms, connection.waits)

    @property
    def is_open(self) -> bool:
        """Not ended for good; whether it is connected now is another question."""
        return self.error is None

    @property
    def is_resuming(self) -> bool:
        """Whether there is no connection, or not all is restored on it yet."""
        return self.error is None and self._bare is None

    @property
    def unconfirmed(self) -> int:
        return self.outstanding.confirms.outstanding if self.outstanding is not None else 0

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self, bare: Channel) -> None:
        """The next bare channel; it is not used before `resume`."""
        bare.on_end = self._bare_ended
        bare.on_return = self._came_back
        if self.outstanding is not None:
            bare.on_confirm = self._confirmed
            self.outstanding.restart()
        self._repeating = True
        if bare.error is not None:
            self._bare_ended(bare.error)

    def resume(self, bare: Channel) -> None:
        """All that was is restored."""
        self._repeating = False
        if bare.is_open:
            self._bare = bare
        self._waiters.wake()

    def _bare_ended(self, error: Exception) -> None:
        self._bare = None
        self._repeating = False
        if not is_passing(error):
            self.end(error)
        self._waiters.wake()

    def end(self, error: Exception) -> None:
        """For good."""
        if self.error is not None:
            return
        self.error = error
        self._bare = None
        self.connection.forget(self)
        if self.outstanding is not None:
            self._waits.fail(error)
        for consumer in list(self.consumers.values()):
            consumer.channel_ended(error)
        self._waiters.wake()

    async def close(self) -> None:
        """What is not confirmed by now is not sent again."""
        bare, closed = self._bare, ChannelClosed()
        self.end(closed)
        if bare is not None:
            try:
                await bare.close()
            except ConnectionEnded as error:
                if not is_passing(error):
                    raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def check(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)

    async def _ready(self) -> Channel:
        while True:
            self.check()
            if self._bare is not None:
                return self._bare
            await self._change()

    async def _change(self) -> None:
        """Wait until there may be a connection, or room."""
        with self.connection.waits:
            await self._waiters.wait()

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, method: m.Method, answer: type[M]) -> M:
        method = self._meant(method)
        topology = self.connection.topology
        while True:
            bare = await self._ready()
            asked = topology.present(method)
            try:
                found = await bare.call(asked, answer)
            except ConnectionEnded as error:
                raise_unless_passing(error)
                continue
            topology.record(asked, found)
            match found:
                case m.QueueDeclareOk(name):
                    self._last_queue = name
                case m.BasicQosOk():
                    assert isinstance(asked, m.BasicQos)
                    self.prefetch[asked.global_] = asked
                case _:
                    pass
            return found

    def _meant(self, method: M) -> M:
        """AMQP's empty name, for the queue that was last declared on the channel, means another channel's
        after a reconnection; so it is spelled out."""
        match method:
            case m.QueueBind("", _, key):
                name = self._last_queue
                return msgspec.structs.replace(method, queue=name, routing_key=key or name)
            case (
                m.QueueUnbind("")
                | m.QueuePurge("")
                | m.QueueDelete("")
                | m.BasicConsume("")
                | m.BasicGet("")
            ):
                return msgspec.structs.replace(method, queue=self._last_queue)
            case _:
                return method

    async def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None if the queue is empty."""
        while True:
            bare = await self._ready()
            name = self.connection.topology.name_of(queue or self._last_queue)
            try:
                return await bare.get(name, no_ack=no_ack)
            except ConnectionEnded as error:
                raise_unless_passing(error)

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> int:
        """The message's number, for its confirm.

        Without confirms it is 0, and while there is no connection `ConnectionLost` is raised.
        """
        self.check()
        encoded = property_bytes(properties)
        if self.outstanding is None:
            return self._now().publish(exchange, key, body, encoded, mandatory=mandatory)
        check_publish(exchange, key, (body,))
        batch = self.outstanding.add(exchange, key, (body,), encoded, mandatory)
        if self._bare is not None:
            self._bare.publish(exchange, key, body, encoded, mandatory=mandatory)
            self.outstanding.sent_now()
        return batch.first

    def publish_many(
        self,
        exchange: str,
        key: str,
        bodies: Sequence[bytes],
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> range:
        """Their numbers; `bodies` are kept until they are confirmed, so do not change the list."""
        self.check()
        encoded = property_bytes(properties)
        if self.outstanding is None:
            return self._now().publish_many(exchange, key, bodies, encoded, mandatory=mandatory)
        check_publish(exchange, key, bodies)
        batch = self.outstanding.add(exchange, key, bodies, encoded, mandatory)
        if self._bare is not None:
            self._bare.publish_many(exchange, key, bodies, encoded, mandatory=mandatory)
            self.outstanding.sent_now()
        return range(batch.first, batch.end)

    def _now(self) -> Channel:
        if self._bare is None:
            raise ConnectionLost(
                "there is no connection now, and messages without confirms are not kept",
                "Open the channel with confirms=True, or drop the message.",
            )
        return self._bare

    async def drain(self) -> None:
        """Wait until there is room for more: in the socket, and within the window of what is unconfirmed."""
        while True:
            self.check()
            if self.outstanding is None:
                full = self._bare is None
            else:
                full = self._repeating or self.outstanding.weight >= self.window
            if full:
                await self._change()
            elif self._bare is None:
                return
            else:
                try:
                    await self._bare.drain()
                except ConnectionEnded as error:
                    raise_unless_passing(error)
                    continue
                return

    async def flush(self) -> None:
        """Wait until all that was published so far is confirmed; `NotConfirmed` for what was refused."""
        await self._confirm_waits().flush()

    async def confirmed(self, number: int) -> None:
        """Wait until message `number` is confirmed; raises `NotConfirmed` if it was refused."""
        await self._confirm_waits().confirmed(number)

    def _confirm_waits(self) -> ConfirmWaits:
        if self.outstanding is None:
            raise ValueError("this channel was opened with confirms=False")
        return self._waits

    def _confirmed(self, numbers: range, ok: bool) -> None:
        assert self.outstanding is not None
        for own in self.outstanding.settle(numbers):
            self._waits.settled(own, ok=ok)
            if self.on_confirm is not None:
                self.on_confirm(own, ok)
        if self.outstanding.weight < self.window:
            self._waiters.wake()

    def _came_back(self, message: Returned) -> None:
        if self.on_return is not None:
            self.on_return(message)

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────

    async def _consume(self, method: m.BasicConsume) -> RobustConsumer:
        """It goes on after a reconnection, in the same loop."""
        name = method.consumer_tag
        if name in self.consumers:
            raise ValueError(f"this channel has a consumer '{name}' already")
        method = self._meant(method)
        consumer = RobustConsumer(self, method)
        while True:
            bare = await self._ready()
            try:
                await bare.start_consumer(consumer, self.connection.topology.present(method))
            except ConnectionEnded as error:
                raise_unless_passing(error)
                continue
            self.consumers[name] = consumer
            return consumer

    def forget(self, consumer: RobustConsumer) -> None:
        if self.consumers.pop(consumer.tag, None) is not None:
            self.connection.consumer_left(consumer.queue)

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        """False, and nothing is sent, if the delivery is stale."""
        return delivery.ack(multiple=multiple)

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Give it back to its queue, or without `requeue` away."""
        return delivery.nack(multiple=multiple, requeue=requeue)


def is_passing(error: Exception) -> bool:
    """Whether another connection may do better."""
    return isinstance(error, ConnectionEnded) and not isinstance(error, ConnectionClosed)


def raise_unless_passing(error: ConnectionEnded) -> None:
    """What made the broker close the connection is not tried again: it would do so again."""
    if not is_passing(error) or (isinstance(error, ClosedByBroker) and error.code != _FORCED):
        raise error
