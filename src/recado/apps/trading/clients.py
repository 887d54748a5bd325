"""The clients: each sends its list of orders again and again, one ask at a time, and times every one."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from time import perf_counter_ns, process_time
from typing import Final

from recado.actors import Actor, ActorRef, ActorSystem

from .book import Totals
from .exchange import NODE_NAME, RECEPTIONIST_NAME, Receptionist
from .measurement import AskTiming
from .messages import Ask, AskTimes, Bid, FindReceivers, GetTotals, Order, PlaceOrders
from .shares import SYMBOLS

ASK_TIMEOUT_S: Final = 30.0
RUN_TIMEOUT_S: Final = 3600.0
PRICE: Final = 100
VOLUME: Final = 1000

# Of each share a bid, and an ask that meets it: whoever's orders they are, the books end up empty, or nearly.
ORDERS: Final[tuple[Order, ...]] = tuple(
    kind(symbol, PRICE, VOLUME) for symbol in SYMBOLS for kind in (Bid, Ask)
)


class TotalsMismatchError(RuntimeError):
    """The exchange has another account of a run than its clients."""


class Client(Actor[PlaceOrders]):
    """`counts` has a place for each client, for others to see how far it is."""

    def __init__(self, number: int, receiver: ActorRef[Order], counts: array[int]) -> None:
        self._number = number
        self._receiver = receiver
        self._counts = counts

    async def receive(self, message: PlaceOrders) -> None:
        receiver, counts, number = self._receiver, self._counts, self._number
        times = array("q")
        for order in islice(cycle(ORDERS), message.orders):
            began = perf_counter_ns()
            await receiver.ask(order, ASK_TIMEOUT_S)
            ended = perf_counter_ns()
            times.append(began)
            times.append(ended - began)
            counts[number] += 1
        self.reply(AskTimes(tuple(times[::2]), tuple(times[1::2])))


@dataclass(frozen=True)
class ClientsOutcome:
    asks: Sequence[AskTiming]
    cpu_seconds: float
    """Seconds of processor time of this process, while asks were under way."""
    totals: Totals


class ClientGroup:
    """The clients of one run, on their node; the exchange is on another."""

    def __init__(self, system: ActorSystem, run: str, clients: int) -> None:
        self._system = system
        self._run = run
        self._counts = array("q", bytes(8 * clients))
        self._receptionist = system.actor(RECEPTIONIST_NAME, Receptionist, node=NODE_NAME)
        self._clients: list[ActorRef[PlaceOrders]] = []

    @property
    def completed_asks(self) -> int:
        """How many asks are over."""
        return sum(self._counts)

    async def prepare(self) -> None:
        """Find the receivers, once, and pair clients with them, round and round."""
        found = await self._receptionist.ask(FindReceivers(), ASK_TIMEOUT_S)
        pairs = zip(range(len(self._counts)), cycle(found.receivers), strict=False)
        for number, receiver in pairs:
            made = partial(Client, number, receiver, self._counts)
            self._clients.append(await self._system.spawn(made, name=f"client.{number + 1}"))

    async def run(self, asks: int) -> ClientsOutcome:
        """All asks, shared by the clients."""
        trade = PlaceOrders(asks // len(self._clients))
        used, start = process_time(), perf_counter_ns()
        waiting = [client.ask(trade, RUN_TIMEOUT_S) for client in self._clients]
        times = await asyncio.gather(*waiting)
        processor = process_time() - used
        return ClientsOutcome(
            list(self._ask_timings(times, start)), processor, await self._checked_totals(asks)
        )

    def _ask_timings(self, times: Sequence[AskTimes], start: int) -> Iterator[AskTiming]:
        for client, each in enumerate(times):
            pairs = zip(each.began, each.nanoseconds, strict=True)
            for number, (began, took) in enumerate(pairs):
                yield AskTiming(self._run, client, number, began - start, took)

    async def _checked_totals(self, asks: int) -> Totals:
        """What the exchange has to say about it."""
        totals = (await self._receptionist.ask(GetTotals(), ASK_TIMEOUT_S)).totals
        if totals.orders != asks or not totals.is_balanced:
            raise TotalsMismatchError(
                f"{asks} orders were confirmed, and the exchange has {totals}"
            )
        return totals


async def report_progress(
    group: ClientGroup, report: Callable[[int], None], interval: float
) -> None:
    """Tells how far it is, until it is cancelled."""
    while True:
        await asyncio.sleep(interval)
        report(group.completed_asks)
