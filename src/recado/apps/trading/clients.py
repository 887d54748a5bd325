"""The clients: each sends its list of orders repeatedly, one ask at a time, and times every ask."""

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
from .messages import (
    AskTimes,
    BuyOrder,
    FindReceivers,
    GetTotals,
    Order,
    PlaceOrders,
    SellOrder,
)
from .shares import SYMBOLS

ASK_TIMEOUT_S: Final = 30.0
RUN_TIMEOUT_S: Final = 3600.0
# For each share an order to buy and one to sell that match, so the books end up empty, or nearly.
ORDERS: Final[tuple[Order, ...]] = tuple(
    order_class(symbol, price=100, volume=1000)
    for symbol in SYMBOLS
    for order_class in (BuyOrder, SellOrder)
)


class TotalsMismatchError(RuntimeError):
    """The totals of the exchange do not match the orders of the clients."""


class Client(Actor[PlaceOrders]):
    """Sends orders, and counts its completed asks in `counts[number]`, where the progress is read."""

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
    """CPU time of this process during the asks, in seconds."""
    totals: Totals


class ClientGroup:
    """The clients of one run, on one node; the exchange is on another."""

    def __init__(self, system: ActorSystem, run: str, clients: int) -> None:
        self._system = system
        self._run = run
        self._counts = array("q", bytes(8 * clients))
        self._receptionist = system.actor(RECEPTIONIST_NAME, Receptionist, node=NODE_NAME)
        self._clients: list[ActorRef[PlaceOrders]] = []

    @property
    def completed_asks(self) -> int:
        """The number of asks that were answered."""
        return sum(self._counts)

    async def prepare(self) -> None:
        """Ask the receptionist for the receivers, and assign them to the clients in turn."""
        found = await self._receptionist.ask(FindReceivers(), ASK_TIMEOUT_S)
        pairs = zip(range(len(self._counts)), cycle(found.receivers), strict=False)
        for number, receiver in pairs:
            factory = partial(Client, number, receiver, self._counts)
            self._clients.append(await self._system.spawn(factory, name=f"client.{number + 1}"))

    async def run(self, asks: int) -> ClientsOutcome:
        """Send all asks, distributed evenly to the clients, and return their timings."""
        place_orders = PlaceOrders(asks // len(self._clients))
        cpu_start, start_ns = process_time(), perf_counter_ns()
        replies = [client.ask(place_orders, RUN_TIMEOUT_S) for client in self._clients]
        times = await asyncio.gather(*replies)
        return ClientsOutcome(
            asks=list(self._ask_timings(times, start_ns)),
            cpu_seconds=process_time() - cpu_start,
            totals=await self._checked_totals(asks),
        )

    def _ask_timings(self, times: Sequence[AskTimes], start_ns: int) -> Iterator[AskTiming]:
        for client, client_times in enumerate(times):
            pairs = zip(client_times.began, client_times.nanoseconds, strict=True)
            for number, (began, duration_ns) in enumerate(pairs):
                yield AskTiming(self._run, client, number, began - start_ns, duration_ns)

    async def _checked_totals(self, asks: int) -> Totals:
        """Return the totals of the exchange. Raises TotalsMismatchError if they do not match the asks."""
        totals = (await self._receptionist.ask(GetTotals(), ASK_TIMEOUT_S)).totals
        if totals.orders != asks or not totals.is_balanced:
            raise TotalsMismatchError(
                f"{asks} orders were confirmed, but the totals of the exchange are {totals}"
            )
        return totals


async def report_progress(
    group: ClientGroup, report: Callable[[int], None], interval: float
) -> None:
    """Report the number of completed asks every `interval` seconds, until cancelled."""
    while True:
        await asyncio.sleep(interval)
        report(group.completed_asks)
