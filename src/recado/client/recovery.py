"""Recovery: make a new connection equal to the lost one.

The order is topology, then channels with prefetch and consumers, then unconfirmed messages. Declarations use a
separate channel, because the broker closes the channel of a declaration that it refuses. A refused entity is
reported (`RecoverySkipped`) and left out. A queue that another connection uses exclusively is most likely still
held by the lost connection, which the broker considers open: then the whole attempt fails and is repeated
later.
"""

from collections.abc import Callable, Iterable

import msgspec

from recado.amqp import methods as m

from .channel import Channel
from .connection import Connection
from .errors import ChannelClosedByBrokerError
from .events import RecoverySkipped
from .robust_channel import RobustChannel
from .topology import DeclaredQueue, Topology

_NOT_FOUND_CODE = 404


class ConnectionRecovery:
    """One recovery on a new connection; skipped entities are passed to `report`."""

    def __init__(
        self, connection: Connection, topology: Topology, report: Callable[[RecoverySkipped], None]
    ) -> None:
        self._connection = connection
        self._topology = topology
        self._report = report
        self._declare_channel: Channel | None = None
        self.renamed_queues: dict[str, str] = {}
        self.republished_count = 0

    async def recover_topology(self) -> None:
        """Declare exchanges, queues and bindings."""
        topology = self._topology
        for name, declare in list(topology.exchanges.items()):
            await self._call_or_skip(f"exchange '{name}'", declare, m.ExchangeDeclareOk)
        for name, queue in list(topology.queues.items()):
            await self._declare_queue(name, queue)
        for binding in topology.bindings:
            match binding:
                case m.QueueBind(bound, exchange):
                    entity = f"binding of queue '{bound}' to exchange '{exchange}'"
                    await self._call_or_skip(entity, binding, m.QueueBindOk)
                case m.ExchangeBind(bound, exchange):
                    entity = f"binding of exchange '{bound}' to exchange '{exchange}'"
                    await self._call_or_skip(entity, binding, m.ExchangeBindOk)
        if self._declare_channel is not None:
            await self._declare_channel.close()

    async def _declare_queue(self, name: str, queue: DeclaredQueue) -> None:
        declare = queue.declare
        if queue.named_by_broker:
            if not declare.exclusive and await self._queue_exists(name):
                return
            declare = msgspec.structs.replace(declare, queue="")
        reply = await self._call_or_skip(f"queue '{name}'", declare, m.QueueDeclareOk)
        if reply is not None and reply.queue != name:
            self._topology.record_rename(name, reply.queue)
            self.renamed_queues[name] = reply.queue

    async def _queue_exists(self, name: str) -> bool:
        """Return whether a queue exists; one that is not exclusive may have survived the lost connection."""
        channel = await self._open_declare_channel()
        try:
            await channel.declare_queue(name, passive=True)
        except ChannelClosedByBrokerError as error:
            if error.reply_code != _NOT_FOUND_CODE:
                raise
            return False
        return True

    async def _call_or_skip(
        self, entity: str, method: m.Method, reply_type: type[m.QueueDeclareOk] | type[m.Method]
    ) -> m.QueueDeclareOk | None:
        """Send a declaration or binding; if the broker refuses it, report `RecoverySkipped`.

        Returns the reply to queue.declare; None for other methods and for a refused one.
        """
        channel = await self._open_declare_channel()
        try:
            reply = await channel.call(method, reply_type)
        except ChannelClosedByBrokerError as error:
            if error.is_exclusively_locked:
                raise
            self._report(RecoverySkipped(entity, error))
            return None
        return reply if isinstance(reply, m.QueueDeclareOk) else None

    async def _open_declare_channel(self) -> Channel:
        if self._declare_channel is None or not self._declare_channel.is_open:
            self._declare_channel = await self._connection.channel()
        return self._declare_channel

    async def recover_channels(self, channels: Iterable[RobustChannel]) -> None:
        """Reopen channels with their consumers, then publish unconfirmed messages, which may take long."""
        to_republish: list[tuple[RobustChannel, Channel]] = []
        for channel in channels:
            new_channel = await self._reopen_channel(channel)
            if new_channel is None:
                continue
            if not channel.is_open:
                await new_channel.close()
                continue
            channel._attach(new_channel)
            if channel._unconfirmed is not None and channel._unconfirmed.has_unsent:
                to_republish.append((channel, new_channel))
            else:
                channel._resume(new_channel)
        for channel, new_channel in to_republish:
            try:
                await self._republish(channel, new_channel)
            except ChannelClosedByBrokerError:
                # The broker refused a message, which has ended the robust channel too; others continue.
                if channel.is_open:
                    raise

    async def _reopen_channel(self, channel: RobustChannel) -> Channel | None:
        """Open a plain channel with the same prefetch and consumers; None if it was closed meanwhile."""
        while channel.is_open:
            new_channel = await self._connection.channel(confirms=channel.has_confirms)
            for method in channel._prefetch.values():
                await new_channel.call(method, m.BasicQosOk)
            if await self._restart_consumers(channel, new_channel):
                return new_channel
        return None

    async def _restart_consumers(self, channel: RobustChannel, new_channel: Channel) -> bool:
        """Start the consumers; return False if the broker refused one and so closed the channel.

        The refused consumer is removed, and the caller opens another channel for the rest.
        """
        for tag, consumer in list(channel._consumers.items()):
            if tag not in channel._consumers:
                continue  # cancelled while another one was started
            method = self._topology.resolve_queue_name(consumer.method)
            try:
                await new_channel.start_consumer(consumer, method)
            except ChannelClosedByBrokerError as error:
                if error.is_exclusively_locked:
                    raise
                self._report(RecoverySkipped(f"consumer of queue '{method.queue}'", error))
                consumer.fail_recovery(error)
                return False
        return True

    async def _republish(self, channel: RobustChannel, new_channel: Channel) -> None:
        """Publish unconfirmed messages; messages published meanwhile are appended to them."""
        unconfirmed = channel._unconfirmed
        while unconfirmed is not None and unconfirmed.has_unsent:
            for batch in unconfirmed.take_unsent():
                self.republished_count += len(batch.bodies)
                new_channel.publish_many(
                    batch.exchange,
                    batch.routing_key,
                    batch.bodies,
                    batch.properties,
                    mandatory=batch.mandatory,
                )
            await new_channel.drain()
        if channel.is_open:
            channel._resume(new_channel)
        else:
            await new_channel.close()
