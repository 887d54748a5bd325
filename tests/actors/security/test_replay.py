"""Replayed frames: a settled one is refused, an unsettled one is not."""

from __future__ import annotations

import asyncio

import pytest

from recado.actors import Actor, ActorSystem
from recado.actors.remote.errors import RefusalReason
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.frame import OVERHEAD_BYTES
from tests.actors.remote.running import in_a_loop

from .mallory import (
    COOKIE,
    Account,
    Balance,
    Deposit,
    Link,
    Mallory,
    bank,
    connection,
    is_refusal,
)

GUARDED = RemoteOptions(cookie=COOKIE, require_cookie=True)


@in_a_loop
async def test_what_was_settled_is_refused() -> None:
    async with bank(GUARDED) as house:
        frame = Mallory(COOKIE).deposit(one_way=True)
        link = house.give(frame)
        assert link.refusals == []
        for _ in range(5):
            house.give(frame, link)
        assert link.refusals == [RefusalReason.REPLAY] * 5
        assert await house.balance() == 100


@in_a_loop
async def test_on_another_link_too() -> None:
    """Somebody who wrote down what a customer sent, and has no cookie."""
    frame = Mallory(COOKIE, name="customer").deposit(one_way=True)
    async with bank(GUARDED) as house:
        house.give(frame, Link())
        async with connection(house.port) as socket:
            socket.send_frame(frame)
            assert is_refusal(await socket.frame())
        assert await house.balance() == 100


@in_a_loop
async def test_by_the_next_life_of_a_node_too() -> None:
    """It has forgotten all that the last one settled; but who sends it again cannot prove that it may."""
    frame = Mallory(COOKIE, name="customer").deposit(one_way=True)
    async with bank(GUARDED) as house, connection(house.port, COOKIE) as socket:
        socket.send_frame(frame)
        await house.until_balance(100)
    async with bank(GUARDED) as house, connection(house.port) as socket:
        socket.send_frame(frame)
        assert is_refusal(await socket.frame())
        assert await house.balance() == 0


@in_a_loop
async def test_by_the_next_life_of_a_node_too_if_somebody_between_adds_it() -> None:
    """Both ends of the connection have proved themselves."""
    customer = Mallory(COOKIE, name="customer")
    frame = customer.deposit(one_way=True)
    async with bank(GUARDED) as house, connection(house.port, COOKIE) as socket:
        socket.send_frame(frame)
        await house.until_balance(100)
    async with bank(GUARDED) as house, connection(house.port, COOKIE) as socket:
        socket.send_frame(customer.deposit(one_way=True))
        await house.until_balance(100)
        socket.send(len(frame).to_bytes(4) + frame)
        socket.send_frame(customer.deposit(one_way=True))
        assert await socket.ended()
        assert await house.balance() == 100


@in_a_loop
async def test_however_much_came_between() -> None:
    async with bank(GUARDED) as house:
        mallory, link = Mallory(COOKIE), Link()
        frames = [mallory.deposit(one_way=True) for _ in range(2_000)]
        for frame in frames[1::2] + frames[::2]:  # every second one later
            house.give(frame, link)
        assert await house.balance() == 200_000
        for frame in frames:
            house.give(frame, Link())
        assert await house.balance() == 200_000


@in_a_loop
async def test_the_envelope_under_another_sequence_is_not_ours_to_take() -> None:
    async with bank(GUARDED) as house:
        frame = Mallory(COOKIE).deposit(one_way=True)
        house.give(frame)
        for sequence in (0, 2, 3, 1 << 40):
            renumbered = frame[:17] + sequence.to_bytes(8) + frame[25:]
            assert house.give(renumbered).refusals == [RefusalReason.COOKIE]
        reborn = frame[:1] + bytes(16) + frame[17:]
        assert house.give(reborn).refusals == [RefusalReason.COOKIE]
        assert await house.balance() == 100


class Settling:
    """A broker that gives a message, and perhaps again; it writes down what became of it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.link = Link(is_durable=True)
        self.settled: list[bool] = []

    def give(self, frame: bytes) -> None:
        self._node.frame_received(self.link, frame, self.settled.append)


@in_a_loop
async def test_a_settled_one_of_a_broker_is_settled_again_and_not_handled() -> None:
    async with bank(GUARDED) as house:
        broker = Settling(house.node)
        frame = Mallory(COOKIE).deposit(one_way=True)
        for _ in range(3):
            broker.give(frame)
            assert await house.balance() == 100
        assert broker.settled == [True, True, True]
        assert broker.link.refusals == []


class Slow(Actor[Deposit]):
    """It handles nothing until it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.total = 0

    async def receive(self, message: Deposit) -> None:
        await self.may.wait()
        self.total += message.amount


@in_a_loop
async def test_an_unsettled_one_is_not_refused_and_not_handled_twice() -> None:
    async with bank(GUARDED) as house:
        ref = await house.system.spawn(Slow, name="slow", capacity=1)
        cell = house.system._find_cell(ref.address)
        assert cell is not None
        slow = cell.actor
        assert isinstance(slow, Slow)
        broker, mallory = Settling(house.node), Mallory(COOKIE)
        target = "recado-actor://bank/slow"
        frames = [mallory.deposit(one_way=True, target=target) for _ in range(4)]
        for frame in frames:
            broker.give(frame)
        await asyncio.sleep(0)
        unsettled = len(frames) - len(broker.settled)
        assert unsettled  # its mailbox is full
        for frame in frames:  # the broker thinks that we are gone, and gives all of them again
            broker.give(frame)
        assert broker.link.refusals == []
        slow.may.set()
        async with asyncio.timeout(5):
            while slow.total < 400 or len(broker.settled) < len(frames):  # noqa: ASYNC110 (turns only)
                await asyncio.sleep(0)
        assert slow.total == 400
        assert all(broker.settled)


@in_a_loop
async def test_what_a_dead_node_did_not_settle_comes_to_its_next_life_once() -> None:
    """Through a broker in memory: the first life of the bank dies before it has settled anything."""
    hub = MemoryNetwork(durable=True)

    def life() -> ActorSystem:
        return ActorSystem("bank", transport=MemoryTransport(hub), options=GUARDED)

    async with ActorSystem("customer", transport=MemoryTransport(hub), options=GUARDED) as customer:
        async with life() as first:
            await first.spawn(Account, name="account")
        account = customer.actor("account", Account, node="bank")
        for _ in range(3):
            account.tell(Deposit(100))
        async with life() as second:
            await second.spawn(Account, name="account")
            assert await account.ask(Balance(), timeout=5) == 300


@pytest.mark.parametrize("cut", [OVERHEAD_BYTES, OVERHEAD_BYTES + 1])
def test_a_refused_frame_does_not_use_up_its_sequence(cut: int) -> None:
    """Or somebody could have frames refused before they arrive."""

    @in_a_loop
    async def go() -> None:
        async with bank(GUARDED) as house:
            frame = Mallory(COOKIE).deposit(one_way=True)
            house.give(frame[:cut])
            assert await house.balance() == 0
            house.give(frame)
            assert await house.balance() == 100

    go()
