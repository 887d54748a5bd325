"""The surveyor declares the objects of the other clients, and checks in every incarnation whether all of them exist.

A missing one is declared again, so that the clients can continue: the history has the violation already. It
also leaves landmarks, queues that are declared in one incarnation and deleted in another.
"""

from __future__ import annotations

from typing import Final

from bench.crash import history as h
from bench.crash.client import BrokerObjectedError, Client, Incarnation, connect
from bench.crash.history import History
from bench.crash.topology import BINDINGS, EXCHANGES, QUEUES
from recado.amqp import methods as m

NOT_FOUND: Final = 404

# Each with the method that checks it, and the one that declares it.
THINGS: Final[tuple[tuple[str, m.Method, m.Method], ...]] = (
    *(
        (
            f"exchange {name}",
            m.ExchangeDeclare(name, kind, passive=True),
            m.ExchangeDeclare(name, kind, durable=True),
        )
        for name, kind in EXCHANGES.items()
    ),
    *(
        (
            f"queue {queue.name}",
            m.QueueDeclare(queue.name, passive=True),
            m.QueueDeclare(queue.name, durable=True, arguments=queue.arguments),
        )
        for queue in QUEUES
    ),
)


class Surveyor:
    def __init__(self, history: History) -> None:
        self._history = history
        self._declared: set[str] = set()
        self._landmarks: list[str] = []
        self._deleted = ""
        for queue in QUEUES:
            if queue.letters_to:
                history.add(h.Lettered(queue.name, queue.letters_to, queue.expires))

    async def survey(self, incarnation: Incarnation) -> None:
        """Afterwards everything exists."""
        client = await connect(incarnation)
        for thing, look, declare in THINGS:
            if not await self._there(client, thing, look):
                await self._declare(client, thing, declare)
        for exchange, name, key in BINDINGS:
            # A binding disappears with either end; whether a single one is lost shows in where messages arrive.
            thing = f"binding {exchange} {name}"
            if thing not in self._declared:
                await client.call(m.QueueBind(name, exchange, key))
                self._declared.add(thing)
        await self._landmark(client, incarnation)
        client.leave()

    async def _there(self, client: Client, thing: str, look: m.Method) -> bool:
        try:
            await client.call(look)
        except BrokerObjectedError as objection:
            if objection.code != NOT_FOUND:
                raise
            self._history.add(h.Missed(thing))
            self._declared.clear()
            await client.call(m.ChannelOpen())
            return False
        self._history.add(h.Found(thing))
        return True

    async def _declare(self, client: Client, thing: str, method: m.Method) -> None:
        self._history.add(h.Asked(thing))
        await client.call(method)
        self._history.add(h.Declared(thing))

    async def _landmark(self, client: Client, incarnation: Incarnation) -> None:
        for name in (*self._landmarks, self._deleted):
            if name:
                await self._there(client, f"queue {name}", m.QueueDeclare(name, passive=True))
        name = f"landmark-{incarnation.number}"
        await self._declare(client, f"queue {name}", m.QueueDeclare(name, durable=True))
        self._landmarks.append(name)
        if len(self._landmarks) > 2:
            name = self._deleted = self._landmarks.pop(0)
            self._history.add(h.Asked(f"queue {name}"))
            await client.call(m.QueueDelete(name))
            self._history.add(h.Deleted(f"queue {name}"))
