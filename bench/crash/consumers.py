"""Consumers: prompt and late ones, ones that requeue, that reject, and that disconnect without closing.

Whether an ack arrived is only known by a later answer. So some consumers publish a receipt on the same channel
after their acks, and others ack in transactions: a confirm and a commit-ok are sent only when everything before
them is on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Final

from bench.crash import history as h
from bench.crash import message
from bench.crash.client import CHANNEL, Client, Incarnation, connect
from bench.crash.history import History, Message
from bench.crash.publishers import Mail
from bench.crash.topology import DEAD, EXPIRED, RECEIPTS, direct
from recado.amqp import methods as m
from recado.amqp.frames import encode_ack_frame, encode_method_frame


class Proof(Enum):
    """How a consumer learns that its acks are durable."""

    NONE = auto()
    RECEIPT = auto()
    TRANSACTION = auto()


@dataclass(frozen=True)
class Temper:
    name: str
    queue: str
    prefetch: int = 50
    batch: int = 1
    """It settles after so many deliveries, or when none comes for a moment."""
    multiple: bool = False
    requeues: float = 0.0
    """The share of deliveries that it requeues, of those that are not redelivered."""
    rejects: float = 0.0
    leaves: float = 0.0
    """How likely it leaves after a batch, instead of settling it."""
    proof: Proof = Proof.NONE


TEMPERS: Final = (
    Temper("prompt", "orders"),
    Temper("late", "orders", prefetch=40, batch=20, proof=Proof.RECEIPT),
    Temper("bulk", "bulk", prefetch=500, batch=100, multiple=True),
    Temper("reader", "news-1", multiple=True),
    Temper("fickle", "news-2", requeues=0.1),
    Temper("fleeting", "news-3", prefetch=30, batch=10, leaves=0.1),
    Temper("ranking", "ranked", prefetch=10, batch=3, requeues=0.05, proof=Proof.RECEIPT),
    Temper("raft", "quorum", batch=15, proof=Proof.TRANSACTION),
    Temper("auditor", "ledger-a", batch=5, requeues=0.05, proof=Proof.TRANSACTION),
    Temper("clerk", "ledger-b", batch=5, multiple=True, leaves=0.05, proof=Proof.RECEIPT),
    Temper("narrow", "narrow", prefetch=10, batch=5),
    Temper("picky", "picked", batch=5, rejects=0.3, requeues=0.05, proof=Proof.RECEIPT),
    Temper("choosy", "picked", rejects=0.3, leaves=0.02),
    Temper("undertaker", DEAD, batch=4, proof=Proof.RECEIPT),
    Temper("heir", EXPIRED, batch=4, leaves=0.02),
    Temper("receipts", RECEIPTS, multiple=True),
)
IDLE_S: Final = 0.005


@dataclass(frozen=True)
class Held:
    tag: int
    message: Message
    redelivered: bool


class Consumer:
    def __init__(self, temper: Temper, history: History, rng: Random) -> None:
        self.name = f"{temper.queue}-{temper.name}"
        self._temper = temper
        self._history = history
        self._rng = rng
        self._mail = Mail(f"{self.name}-receipts", history, rng)
        self._mail.on_kept = self._receipted
        self._times = 0

    async def live(self, incarnation: Incarnation) -> None:
        """Consume until the broker is gone."""
        while True:
            self._times += 1
            self._incarnation = incarnation.number
            self._connection = f"{self.name}-{self._times}"
            self._held: list[Held] = []
            self._proven: dict[int, tuple[Message, ...]] = {}
            await self._consume(await connect(incarnation))

    async def _consume(self, client: Client) -> None:
        """Until it leaves."""
        temper = self._temper
        if temper.proof is Proof.TRANSACTION:
            await client.call(m.TxSelect())
        elif temper.proof is Proof.RECEIPT:
            await self._mail.begin(client)
        client.on_delivery = self._delivered
        await client.call(m.BasicQos(0, temper.prefetch))
        await client.call(m.BasicConsume(temper.queue))
        while True:
            await self._batch(client)
            if self._rng.random() < temper.leaves:
                self._history.add(h.Gone(self._incarnation, self._connection, temper.queue))
                client.leave()
                return
            await self._settle(client)

    async def _batch(self, client: Client) -> None:
        """Wait until there is something to settle."""
        held = self._held
        await client.until(lambda: len(held) > 0)
        more = True
        while more and len(held) < self._temper.batch:
            more = await client.until(partial(grown, held, len(held)), IDLE_S)

    def _delivered(self, method: m.BasicDeliver, body: bytes) -> None:
        queue = self._temper.queue
        which = message.parse(body)
        if which is None:
            self._history.add(h.Damaged(queue, repr(body[:80])))
            return
        redelivered = method.redelivered
        self._history.add(
            h.Delivered(self._incarnation, self._connection, queue, which, redelivered)
        )
        self._held.append(Held(method.delivery_tag, which, redelivered))

    async def _settle(self, client: Client) -> None:
        temper, rng = self._temper, self._rng
        held = self._held[:]
        self._held.clear()
        acked, rejected, requeued = [], [], []
        for each in held:
            chance = rng.random()
            if chance < temper.rejects:
                rejected.append(each)
            elif chance < temper.rejects + temper.requeues and not each.redelivered:
                requeued.append(each)
            else:
                acked.append(each)
        self._note(acked, rejected, requeued)
        # Those before the last acked one are either acked or named.
        frames = [reject(each, requeue=False) for each in rejected]
        frames += [reject(each, requeue=True) for each in requeued]
        if temper.multiple and acked:
            frames.append(encode_ack_frame(CHANNEL, acked[-1].tag, multiple=True))
        else:
            frames += [encode_ack_frame(CHANNEL, each.tag, multiple=False) for each in acked]
        client.write(b"".join(frames))
        await self._prove(client, tuple(each.message for each in acked + rejected))

    def _note(self, acked: list[Held], rejected: list[Held], requeued: list[Held]) -> None:
        """Record it before it is sent. In a transaction nothing is sent until the commit, but no other event
        comes between either."""
        add, queue = self._history.add, self._temper.queue
        for each in acked:
            add(h.Acked(queue, each.message))
        for each in rejected:
            add(h.Rejected(queue, each.message))
        for each in requeued:
            add(h.Requeued(queue, each.message))

    async def _prove(self, client: Client, settled: tuple[Message, ...]) -> None:
        match self._temper.proof:
            case Proof.TRANSACTION:
                await client.call(m.TxCommit())
                self._history.add(h.Kept(self._temper.queue, settled))
            case Proof.RECEIPT if settled:
                ((_, number),) = self._mail.send([direct(RECEIPTS)])
                self._proven[number] = settled
            case _:
                pass

    def _receipted(self, number: int) -> None:
        self._history.add(h.Kept(self._temper.queue, self._proven.pop(number)))


def grown(held: list[Held], beyond: int) -> bool:
    return len(held) > beyond


def reject(held: Held, *, requeue: bool) -> bytes:
    return encode_method_frame(CHANNEL, m.BasicNack(held.tag, False, requeue))
