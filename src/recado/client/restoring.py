"""How all that was is made again on a new connection: topology, channels, consumers, messages; in this order.

Declarations go over a channel of their own, so that one that is refused ends nothing else. What is refused for
good is reported and left out. What another connection still holds exclusively is most likely our own old one,
which the broker has not missed yet: the whole attempt fails, and is made again later.
"""

from collections.abc import Callable, Iterable

import msgspec

from recado.amqp import methods as m

from .channel import Channel
from .connection import Connection
from .errors import ChannelRefused
from .notices import NotRestored
from .robust_channel import RobustChannel
from .topology import DeclaredQueue, Topology

_NOT_FOUND = 404


class Restoration:
    def __init__(
        self, connection: Connection, topology: Topology, report: Callable[[NotRestored], None]
    ) -> None:
        self._connection = connection
        self._topology = topology
        self._report = report
        self._scratch: Channel | None = None
        self.renamed: dict[str, str] = {}
        self.repeated = 0

    async def declare(self) -> None:
        """Exchanges, queues, bindings."""
        topology = self._topology
        for name, declare in list(topology.exchanges.items()):
            await self._try(f"exchange '{name}'", declare, m.ExchangeDeclareOk)
        for name, queue in list(topology.queues.items()):
            await self._declare_queue(name, queue)
        for binding in topology.bindings:
            match binding:
                case m.QueueBind(bound, exchange):
                    what = f"binding of queue '{bound}' to exchange '{exchange}'"
                    await self._try(what, binding, m.QueueBindOk)
                case m.ExchangeBind(bound, exchange):
                    what = f"binding of exchange '{bound}' to exchange '{exchange}'"
                    await self._try(what, binding, m.ExchangeBindOk)
        if self._scratch is not None:
            await self._scratch.close()

    async def _declare_queue(self, name: str, queue: DeclaredQueue) -> None:
        declare = queue.declare
        if queue.named_by_broker:
            if not declare.exclusive and await self._is_there(name):
                return
            declare = msgspec.structs.replace(declare, queue="")
        found = await self._try(f"queue '{name}'", declare, m.QueueDeclareOk)
        if found is not None and found.queue != name:
            self._topology.renamed(name, found.queue)
            self.renamed[name] = found.queue

    async def _is_there(self, name: str) -> bool:
        """A queue that the broker named and that is not exclusive may have outlived the connection."""
        channel = await self._channel()
        try:
            await channel.declare_queue(name, passive=True)
        except ChannelRefused as error:
            if error.code != _NOT_FOUND:
                raise
            return False
        return True

    async def _try(
        self, what: str, method: m.Method, answer: type[m.QueueDeclareOk] | type[m.Method]
    ) -> m.QueueDeclareOk | None:
        channel = await self._channel()
        try:
            found = await channel.call(method, answer)
        except ChannelRefused as error:
            if error.is_held:
                raise
            self._report(NotRestored(what, error))
            return None
        return found if isinstance(found, m.QueueDeclareOk) else None

    async def _channel(self) -> Channel:
        if self._scratch is None or not self._scratch.is_open:
            self._scratch = await self._connection.channel()
        return self._scratch

    async def resume(self, channels: Iterable[RobustChannel]) -> None:
        """Consumers first, all of them: what has to be sent again may be much."""
        behind: list[tuple[RobustChannel, Channel]] = []
        for channel in channels:
            bare = await self._reopen(channel)
            if bare is None:
                continue
            if not channel.is_open:
                await bare.close()
                continue
            channel.prepare(bare)
            if channel.outstanding is not None and channel.outstanding.has_unsent:
                behind.append((channel, bare))
            else:
                channel.resume(bare)
        for channel, bare in behind:
            try:
                await self._repeat(channel, bare)
            except ChannelRefused:  # what is sent again is refused now, and the channel has ended
                if channel.is_open:
                    raise

    async def _reopen(self, channel: RobustChannel) -> Channel | None:
        """Its prefetch and its consumers; None if the program closes it meanwhile."""
        while channel.is_open:
            bare = await self._connection.channel(confirms=channel.outstanding is not None)
            for method in channel.prefetch.values():
                await bare.call(method, m.BasicQosOk)
            if await self._consume(channel, bare):
                return bare
        return None

    async def _consume(self, channel: RobustChannel, bare: Channel) -> bool:
        """False: the channel ended because one of its consumers was refused, which it goes on without."""
        for tag, consumer in list(channel.consumers.items()):
            if tag not in channel.consumers:
                continue  # it was cancelled while another was restored
            method = self._topology.present(consumer.method)
            try:
                await bare.start_consumer(consumer, method)
            except ChannelRefused as error:
                if error.is_held:
                    raise
                self._report(NotRestored(f"consumer of queue '{method.queue}'", error))
                consumer.give_up(error)
                return False
        return True

    async def _repeat(self, channel: RobustChannel, bare: Channel) -> None:
        """What is published meanwhile queues up behind."""
        outstanding = channel.outstanding
        while outstanding is not None and outstanding.has_unsent:
            for batch in outstanding.take_unsent():
                self.repeated += len(batch.bodies)
                bare.publish_many(
                    batch.exchange,
                    batch.key,
                    batch.bodies,
                    batch.properties,
                    mandatory=batch.mandatory,
                )
            await bare.drain()
        if channel.is_open:
            channel.resume(bare)
        else:
            await bare.close()
