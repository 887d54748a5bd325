"""Change the queues, exchanges and bindings of a broker.

A dead-letter binding routes the messages of an exchange that match no ordinary binding. On recado it is a binding with
an argument. Other brokers have alternate exchanges, so an exchange that was declared here has one, of the name
`<exchange>.unrouted`:

    recado      exchange ── dead-letter binding ──→ queue
    RabbitMQ    exchange ─→ exchange.unrouted ────→ queue
"""

from recado.amqp.values import FieldTable
from recado.client import RobustChannel

from .declaration import UNROUTED_SUFFIX, Declarer
from .destination import DestinationLike, PublishSubscribe, to_destination

_DEAD_LETTER_BINDING: FieldTable = {"x-dead-letter-binding": True}


class BrokerTopology:
    """The queues, exchanges and bindings of the broker of an application."""

    def __init__(self, declarer: Declarer) -> None:
        self._declarer = declarer

    async def open_channel(self) -> RobustChannel:
        return await self._declarer.open_channel()

    async def declare(self, *destinations: DestinationLike) -> None:
        for each in destinations:
            await self._declarer.declare(each)

    async def delete(self, destination: DestinationLike) -> None:
        target = to_destination(destination)
        async with await self.open_channel() as channel:
            if isinstance(target, PublishSubscribe):
                await channel.delete_exchange(target.name)
                if not self._declarer.is_recado:
                    await channel.delete_exchange(target.name + UNROUTED_SUFFIX)
            else:
                await channel.delete_queue(target.name)
        self._declarer.forget(target)

    async def bind(self, exchange: PublishSubscribe, queue: DestinationLike, key: str) -> None:
        await self._declarer.declare(exchange)
        await self._bind(exchange.name, queue, key, {})

    async def unbind(self, exchange: PublishSubscribe, queue: DestinationLike, key: str) -> None:
        await self._unbind(exchange.name, queue, key, {})

    async def bind_dead_letters(
        self, exchange: PublishSubscribe, queue: DestinationLike, key: str
    ) -> None:
        await self._declarer.declare(exchange)
        if self._declarer.is_recado:
            await self._bind(exchange.name, queue, key, _DEAD_LETTER_BINDING)
        else:
            await self._bind(exchange.name + UNROUTED_SUFFIX, queue, key, {})

    async def unbind_dead_letters(
        self, exchange: PublishSubscribe, queue: DestinationLike, key: str
    ) -> None:
        if self._declarer.is_recado:
            await self._unbind(exchange.name, queue, key, _DEAD_LETTER_BINDING)
        else:
            await self._unbind(exchange.name + UNROUTED_SUFFIX, queue, key, {})

    async def _bind(
        self, exchange: str, queue: DestinationLike, key: str, arguments: FieldTable
    ) -> None:
        target = await self._declarer.declare(queue)
        async with await self.open_channel() as channel:
            await channel.bind_queue(target.name, exchange, key, arguments)

    async def _unbind(
        self, exchange: str, queue: DestinationLike, key: str, arguments: FieldTable
    ) -> None:
        async with await self.open_channel() as channel:
            await channel.unbind_queue(to_destination(queue).name, exchange, key, arguments)
