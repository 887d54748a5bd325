"""Untrusted mode: other nodes cannot create, move, stop, restart or supervise actors of this node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from recado.actors import (
    Actor,
    ActorRef,
    AllForOne,
    Down,
    DurableMailboxes,
    Message,
    Restarted,
    Stopped,
    UnhandledMessageError,
)
from recado.actors.remote.errors import MessageRefusedError, RefusalReason
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.controls import (
    AbandonActor,
    ActorIdentified,
    Control,
    CreateActor,
    MoveActor,
    RemoteSignal,
    SignalName,
)
from recado.actors.remote.wire.envelope_pb2 import Failure
from recado.actors.supervision.signals import Watch
from recado.journal.disk import MemoryDisk
from tests.actors.remote.running import in_a_loop

from .mallory import (
    Account,
    Balance,
    Bank,
    Deposit,
    Link,
    Mallory,
    bank,
    customer,
    payload_of,
)

UNTRUSTED = RemoteOptions(untrusted=True)
KIND = f"{Account.__module__}.{Account.__qualname__}"
ACCOUNT = "recado-actor://bank/account"
HERS = "recado-actor://mallory/hers"
REASON = Failure(kind="ValueError", text="so").SerializeToString()
NONE = msgspec.msgpack.encode([])


@dataclass
class Watched:
    house: Bank
    seen: list[object]

    async def unharmed(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        assert self.seen == []
        assert await self.house.balance() == 0
        assert len(self.house.system.registry) == 1


@asynccontextmanager
async def watched(options: RemoteOptions = UNTRUSTED) -> AsyncIterator[Watched]:
    async with bank(options) as house:
        house.node.creation.offer(Account)
        seen: list[object] = []
        house.system._listeners.append(
            lambda event: seen.append(event) if isinstance(event, Restarted | Stopped) else None
        )
        yield Watched(house, seen)


@pytest.mark.parametrize(
    "control",
    [
        CreateActor(KIND, "new", 0, NONE, "", temporary=False),
        CreateActor(KIND, "", 0, NONE, HERS, temporary=True),
        MoveActor("token", KIND, "new", 0, "", b"\x07", temporary=False),
        AbandonActor("token"),
    ],
)
def test_nothing_is_created_or_moved(control: Control) -> None:
    @in_a_loop
    async def go() -> None:
        async with watched() as it:
            link = it.house.give(Mallory().control(control))
            assert link.refusals == [RefusalReason.UNTRUSTED]
            await it.unharmed()

    go()


@pytest.mark.parametrize("name", ["link", "unlink", "restart", "stop", "tie", "untie", "exit"])
def test_nobody_is_ruled(name: SignalName) -> None:
    @in_a_loop
    async def go() -> None:
        async with watched() as it:
            about = "" if name in ("stop", "restart") else HERS
            mallory, link = Mallory(), Link()
            it.house.give(mallory.control(RemoteSignal(name, about, REASON), target=ACCOUNT), link)
            assert link.refusals == [RefusalReason.UNTRUSTED]
            await it.unharmed()

    go()


@pytest.mark.parametrize("options", [UNTRUSTED, RemoteOptions()])
@pytest.mark.parametrize("name", ["down", "failed", "ended"])
def test_what_nobody_waits_for_is_not_heard(name: SignalName, options: RemoteOptions) -> None:
    """Of an actor that ours neither watches nor supervises. So many are more than any budget."""

    @in_a_loop
    async def go() -> None:
        async with watched(options) as it:
            mallory, link = Mallory(), Link()
            for number in range(60):
                about = f"recado-actor://mallory/{number % 3}"
                it.house.give(
                    mallory.control(RemoteSignal(name, about, REASON), target=ACCOUNT), link
                )
            await it.unharmed()

    go()


class Parent(Actor[Any]):
    supervisor_strategy = AllForOne(1, within=60)

    def __init__(self, children: list[ActorRef[Any]]) -> None:
        self._children = children

    async def pre_start(self) -> None:
        self._children.append(await self.start_link(Account))


@in_a_loop
async def test_the_children_of_ours_are_not_restarted_for_a_stranger() -> None:
    async with watched() as it:
        children: list[ActorRef[Any]] = []
        await it.house.system.spawn(lambda: Parent(children), name="parent")
        mallory = Mallory()
        for _ in range(5):
            signal = RemoteSignal("failed", HERS, REASON)
            it.house.give(mallory.control(signal, target="recado-actor://bank/parent"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert it.seen == []
        assert len(children) == 1


@in_a_loop
async def test_a_node_speaks_for_its_own_actors_only() -> None:
    """Ours watches one of the branch; she tells that it is down."""
    async with watched() as it:
        heard: list[object] = []

        class Watcher(Actor[Any]):
            def on_signal(self, signal: object) -> None:
                heard.append(signal)

        ref: ActorRef[Any] = await it.house.system.spawn(Watcher, name="watcher")
        theirs = it.house.system.ref("recado-actor://branch/account")
        cell = it.house.system._find_cell(ref.address)
        assert cell is not None
        cell.ensure_links().watched[theirs] = None
        said = RemoteSignal("down", "recado-actor://branch/account", REASON)
        link = it.house.give(Mallory().control(said, target="recado-actor://bank/watcher"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert link.refusals == [RefusalReason.ENVELOPE]
        assert heard == []


@in_a_loop
async def test_a_node_says_of_its_own_actors_only_who_has_a_name() -> None:
    async with watched() as it:
        theirs = it.house.system.actor("account", node="branch")
        ours = it.house.system.actor("account")
        vigil = it.house.node.remote_watcher.relations
        token = vigil.record_sent(theirs, Watch(ours)).token
        said = ActorIdentified(f"{theirs}#1", token)
        link = it.house.give(Mallory().control(said, target=str(ours)))
        assert link.refusals == [RefusalReason.ENVELOPE]
        assert vigil.record_sent(theirs, Watch(ours)).uid == 0


@in_a_loop
async def test_messages_and_watching_are_allowed() -> None:
    async with bank(UNTRUSTED) as house, customer(house.port) as guest:
        account = guest.actor("account", Account, node="bank")
        assert await account.ask(Deposit(5), timeout=5) == 5
        heard: asyncio.Queue[Any] = asyncio.Queue()

        class Watcher(Actor[Any]):
            def pre_start(self) -> None:
                self.monitor(account)

            def on_signal(self, signal: object) -> None:
                heard.put_nowait(signal)

        await guest.spawn(Watcher)
        assert await account.ask(Balance(), timeout=5) == 5  # so the watch has arrived
        house.account.stop()
        down = await asyncio.wait_for(heard.get(), 5)
        assert isinstance(down, Down)
        assert down.ref == account


@in_a_loop
async def test_who_wants_to_create_is_told_that_it_may_not() -> None:
    async with bank(UNTRUSTED) as house, customer(house.port) as guest:
        house.node.creation.offer(Account)
        with pytest.raises(MessageRefusedError) as refused:
            await Node.of(guest).creation.create("bank", Account)
        assert refused.value.reason is RefusalReason.UNTRUSTED


@in_a_loop
async def test_even_where_it_is_trusted_only_what_is_offered_is_created() -> None:
    async with bank() as house, customer(house.port) as guest:
        with pytest.raises(Exception, match="does not offer"):
            await Node.of(guest).creation.create("bank", "subprocess.Popen", ["true"])
        with pytest.raises(Exception, match="does not offer"):
            await Node.of(guest).creation.create("bank", Account)
        assert len(house.system.registry) == 1


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="cookie"):
        RemoteOptions(require_cookie=True)


class Reset(Message[int]):
    """Nothing that a teller knows."""


class Teller(Actor[Deposit | Balance]):
    """It says so when it is sent nonsense, and replies as if all were asked."""

    def __init__(self) -> None:
        self.balance = 0

    def receive(self, message: Deposit | Balance) -> None:
        match message:
            case Deposit(amount):
                self.balance += amount
                self.reply(self.balance)
            case Balance():
                self.reply(self.balance)
            case _:
                self.unhandled(message)


class SlowTeller(Teller):
    async def receive(self, message: Deposit | Balance) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().receive(message)


@pytest.mark.parametrize("kind", [Teller, SlowTeller])
@pytest.mark.parametrize("durable", [False, True])
@in_a_loop
async def test_nonsense_ends_no_actor(kind: type[Teller], durable: bool) -> None:
    """An actor may fail ten times a minute; who is not trusted would have it stopped by eleven messages."""
    async with bank(UNTRUSTED) as house, customer(house.port) as stranger:
        boxes = DurableMailboxes(house.system, MemoryDisk())
        box = boxes.mailbox("teller") if durable else None
        own = await house.system.spawn(kind, name="teller", mailbox=box)
        teller: ActorRef[Any] = stranger.actor("teller", node="bank")
        for _ in range(30):
            teller.tell(Reset())
            teller.tell(Deposit(1))  # to which it replies
            with pytest.raises(UnhandledMessageError):
                await teller.ask(Reset())
        assert await teller.ask(Balance()) == await own.ask(Balance()) == 30
        assert not boxes.pending_counts()
        with pytest.raises(UnhandledMessageError):
            await own.ask(Reset())  # of our own it is a failure, as ever
        assert await own.ask(Balance()) == 0


@in_a_loop
async def test_nonsense_of_those_who_are_trusted_is_a_failure() -> None:
    async with bank() as house, customer(house.port) as friend:
        await house.system.spawn(Teller, name="teller")
        teller: ActorRef[Any] = friend.actor("teller", node="bank")
        assert await teller.ask(Deposit(5)) == 5
        with pytest.raises(UnhandledMessageError):
            await teller.ask(Reset())
        assert await teller.ask(Balance()) == 0


class Question(Message[int]):
    is_replied: bool


class Clerk(Actor[Question]):
    """Answers some questions by `reply`, others by a returned value."""

    def __init__(self, handled: list[bool]) -> None:
        self.handled = handled

    def receive(self, message: Question) -> int | None:
        self.handled.append(message.is_replied)
        if not message.is_replied:
            return 1
        self.reply(1)
        return None


def test_what_is_told_to_actors_that_reply_and_return_is_no_failure() -> None:
    @in_a_loop
    async def go() -> None:
        async with watched() as it:
            handled: list[bool] = []
            await it.house.system.spawn(lambda: Clerk(handled), name="clerk")
            mallory, link = Mallory(), Link()
            clerk = "recado-actor://bank/clerk"
            for is_replied in (True, False):  # both are handled in one turn
                told = payload_of(Question(is_replied))
                it.house.give(mallory.frame(told, target=clerk, one_way=True), link)
            for _ in range(50):
                await asyncio.sleep(0)
            assert handled == [True, False]
            assert it.seen == []
            assert link.refusals == []

    go()
