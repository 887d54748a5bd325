"""The commands of a channel to which the broker sends one reply; the same for plain and robust channels."""

from abc import ABC, abstractmethod
from itertools import count
from typing import Generic, TypeVar

from recado.amqp import methods as m
from recado.amqp.values import FieldTable

from .consumer import Consumer
from .messages import QueueInfo

M = TypeVar("M", bound=m.Method)
C = TypeVar("C", bound=Consumer)


class ChannelCommands(ABC, Generic[C]):
    """Base class of `Channel` and `RobustChannel`; `C` is the class of their consumers."""

    def __init__(self) -> None:
        self._generated_tags = (f"recado-{number}" for number in count(1))

    @abstractmethod
    async def call(self, method: m.Method, reply_type: type[M]) -> M:
        """Send a method and return the broker's reply, which has the type `reply_type`.

        Raises a `ClientError` if the channel or connection closes instead. All methods below raise the same.
        """

    # ── exchanges, queues, bindings ───────────────────────────────────────────────────────────────────────

    async def declare_exchange(
        self,
        name: str,
        type: str = "direct",  # noqa: A002 - as AMQP calls it
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: FieldTable | None = None,
    ) -> None:
        """Declare an exchange; with `passive`, only check that it exists."""
        flags = (passive, durable, auto_delete, internal, False)
        await self.call(m.ExchangeDeclare(name, type, *flags, arguments or {}), m.ExchangeDeclareOk)

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange; with `if_unused`, only if it has no bindings."""
        await self.call(m.ExchangeDelete(name, if_unused), m.ExchangeDeleteOk)

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: FieldTable | None = None,
    ) -> None:
        """Bind the exchange `destination` to the exchange `source`."""
        bind = m.ExchangeBind(destination, source, routing_key, False, arguments or {})
        await self.call(bind, m.ExchangeBindOk)

    async def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: FieldTable | None = None,
    ) -> None:
        """Remove a binding between exchanges; the arguments must equal those of `bind_exchange`."""
        unbind = m.ExchangeUnbind(destination, source, routing_key, False, arguments or {})
        await self.call(unbind, m.ExchangeUnbindOk)

    async def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: FieldTable | None = None,
    ) -> QueueInfo:
        """Declare a queue; without a name the broker chooses one. With `passive`, only check that it exists.

        Returns its name and the numbers of messages and consumers.
        """
        flags = (passive, durable, exclusive, auto_delete, False)
        reply = await self.call(m.QueueDeclare(name, *flags, arguments or {}), m.QueueDeclareOk)
        return QueueInfo(reply.queue, reply.message_count, reply.consumer_count)

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        """Bind a queue to an exchange."""
        await self.call(
            m.QueueBind(queue, exchange, routing_key, False, arguments or {}), m.QueueBindOk
        )

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        """Remove a binding of a queue; the arguments must equal those of `bind_queue`."""
        await self.call(
            m.QueueUnbind(queue, exchange, routing_key, arguments or {}), m.QueueUnbindOk
        )

    async def purge_queue(self, queue: str) -> int:
        """Drop all messages of a queue; return their number."""
        return (await self.call(m.QueuePurge(queue), m.QueuePurgeOk)).message_count

    async def delete_queue(
        self, queue: str, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue; return the number of messages deleted with it.

        With `if_unused` or `if_empty`, the broker refuses if the queue has consumers or messages.
        """
        delete = m.QueueDelete(queue, if_unused, if_empty)
        return (await self.call(delete, m.QueueDeleteOk)).message_count

    async def qos(
        self, prefetch_count: int, *, prefetch_size: int = 0, global_: bool = False
    ) -> None:
        """Limit the unacknowledged deliveries per consumer, or per channel with `global_`; 0 means no limit."""
        await self.call(m.BasicQos(prefetch_size, prefetch_count, global_), m.BasicQosOk)

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────

    async def consume(
        self,
        queue: str,
        *,
        consumer_tag: str = "",
        no_ack: bool = False,
        exclusive: bool = False,
        no_local: bool = False,
        arguments: FieldTable | None = None,
    ) -> C:
        """Start a consumer of a queue and return it; without `consumer_tag` it gets one for this channel."""
        flags = (no_local, no_ack, exclusive, False)
        return await self._consume(
            m.BasicConsume(
                queue, consumer_tag or next(self._generated_tags), *flags, arguments or {}
            )
        )

    @abstractmethod
    async def _consume(self, method: m.BasicConsume) -> C:
        """Start a consumer; deliveries may directly follow the broker's reply."""
