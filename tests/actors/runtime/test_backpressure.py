"""Full mailboxes: actors, threads and tasks wait, and never fail."""

from __future__ import annotations

import asyncio
import threading

from recado.actors import Actor, ActorRef, ActorSystem
from recado.actors.runtime.backpressure import PAUSE_MAX_S
from tests.actors.cast import Do, Read, Say, Stage
from tests.feeds.io.loop import in_the_loop, until, without_waiting


class Gate(Actor[Say | Read]):
    """Handles a message each time that it is let."""

    def __init__(self) -> None:
        self.may = asyncio.Semaphore(0)
        self.seen: list[str] = []

    async def receive(self, message: Say | Read) -> None:
        match message:
            case Say(text):
                await self.may.acquire()
                self.seen.append(text)
            case Read():
                self.reply(tuple(self.seen))


class Source(Actor[Say]):
    """Sends on what it is sent, with the number of what it has handled."""

    def __init__(self, target: ActorRef[Say | Read], handled: list[str]) -> None:
        self.target = target
        self.handled = handled

    def receive(self, message: Say) -> None:
        self.handled.append(message.text)
        self.target.tell(Say(f"{message.text}1"))
        self.target.tell(Say(f"{message.text}2"))


def inside(system: ActorSystem, ref: ActorRef[Say | Read]) -> Gate:
    cell = system._find_cell(ref.address)
    assert cell is not None
    assert isinstance(cell.actor, Gate)
    return cell.actor


@in_the_loop
async def test_an_actor_that_sent_too_much_is_paused() -> None:  # PR1, PR2
    handled: list[str] = []
    async with ActorSystem() as system:
        ref = await system.spawn(Gate, capacity=2)
        gate = inside(system, ref)
        source = await system.spawn(lambda: Source(ref, handled))
        for text in "abcd":
            source.tell(Say(text))
        await until(lambda: len(handled) == 2)
        for _ in range(10):
            await asyncio.sleep(0)
        # One is being handled, two wait, and one is what a handler sent beyond that.
        assert handled == ["a", "b"]
        assert system.mailbox_size(ref) == 3
        for _ in range(8):
            gate.may.release()
        await until(lambda: gate.seen == [f"{text}{n}" for text in "abcd" for n in (1, 2)])
        assert handled == ["a", "b", "c", "d"]


@without_waiting
async def test_a_circle_of_full_mailboxes_goes_on() -> None:  # PR2
    handled: list[str] = []

    class Circle(Actor[Say]):
        other: ActorRef[Say]

        def receive(self, message: Say) -> None:
            handled.append(message.text)
            for _ in range(2):
                if len(handled) < 20:
                    self.other.tell(message)

    async with ActorSystem() as system:
        a, b = await system.spawn(Circle, capacity=1), await system.spawn(Circle, capacity=1)
        for ref, other in ((a, b), (b, a)):
            system._find_cell(ref.address).actor.other = other  # type: ignore[union-attr]
        began = system._clock.time()
        a.tell(Say("round"))
        await until(lambda: len(handled) >= 20)
        assert system._clock.time() - began >= PAUSE_MAX_S


@without_waiting
async def test_an_actor_that_fills_two_mailboxes_is_paused_once_for_each() -> None:  # PR2
    async with ActorSystem() as system:
        full = [await system.spawn(Gate, capacity=1) for _ in range(2)]
        stage = await system.spawn(Stage)
        cell = system._find_cell(stage.address)
        assert cell is not None

        def fill(stage: Stage) -> int:
            for number in range(100):
                full[number % 2].tell(Say("more"))
            return len(cell.system_queue or ())

        assert await stage.ask(Do(fill)) == 2
        began = system._clock.time()
        assert await stage.ask(Do(lambda _: "goes on")) == "goes on"
        assert system._clock.time() - began <= 2 * PAUSE_MAX_S + 0.1
        for ref in full:  # who waited for too long left nothing behind
            gate = system._find_cell(ref.address)
            assert gate is not None
            assert not gate.space_callbacks
            ref.stop()


@in_the_loop
async def test_who_is_cancelled_while_it_waits_for_room_leaves_nothing_behind() -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(Gate, capacity=1)
        for text in "ab":
            ref.tell(Say(text))
        await until(lambda: system.mailbox_size(ref) == 1)
        cell = system._find_cell(ref.address)
        assert cell is not None
        for _ in range(3):
            waiting = asyncio.create_task(ref.tell_wait(Say("c")))
            await until(lambda: cell.space_callbacks)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert not cell.space_callbacks
        for _ in range(2):
            inside(system, ref).may.release()


@in_the_loop
async def test_an_actor_does_not_wait_for_itself() -> None:
    class Own(Actor[Say]):
        def __init__(self) -> None:
            self.left = 10

        def receive(self, message: Say) -> None:
            while self.left:
                self.left -= 1
                self.ref.tell(message)

    async with ActorSystem() as system:
        own = await system.spawn(Own, capacity=1)
        own.tell(Say("x"))
        await until(lambda: not system.mailbox_size(own))


@in_the_loop
async def test_a_thread_waits_for_room() -> None:  # PR3
    async with ActorSystem() as system:
        ref = await system.spawn(Gate, capacity=2)
        gate, sent = inside(system, ref), list[int]()
        ref.tell(Say("0"))
        await until(lambda: not system.mailbox_size(ref))  # it is handled, and so counts no more

        def work() -> None:
            for number in range(1, 6):
                ref.tell(Say(str(number)))
                sent.append(number)

        thread = threading.Thread(target=work)
        thread.start()
        await until(lambda: system.mailbox_size(ref) == 3)
        assert sent == [1, 2]
        for _ in range(6):
            gate.may.release()
        await asyncio.to_thread(thread.join)
        await until(lambda: gate.seen == list("012345"))


@in_the_loop
async def test_a_thread_that_waits_goes_on_when_the_actor_stops() -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(Gate, capacity=1)
        ref.tell(Say("is handled"))
        await until(lambda: not system.mailbox_size(ref))
        thread = threading.Thread(target=lambda: list(map(ref.tell, map(Say, "abcde"))))
        thread.start()
        await until(lambda: system.mailbox_size(ref) == 2)
        await system.stop(ref, grace=0.01)
        await asyncio.to_thread(thread.join)
        assert system.dead_letter_count == 5


@in_the_loop
async def test_a_task_waits_if_it_wants_to() -> None:  # PR3
    async with ActorSystem() as system:
        ref = await system.spawn(Gate, capacity=1)
        gate, sent = inside(system, ref), list[int]()

        async def send() -> None:
            for number in range(5):
                await ref.tell_wait(Say(str(number)))
                sent.append(number)

        sending = asyncio.create_task(send())
        await until(lambda: len(sent) == 2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert system.mailbox_size(ref) == 1
        ref.tell(Say("at once"))  # a tell does not wait
        for _ in range(6):
            gate.may.release()
        await sending
        await until(lambda: sorted(gate.seen) == ["0", "1", "2", "3", "4", "at once"])


@in_the_loop
async def test_the_system_may_bound_all_mailboxes() -> None:
    async with ActorSystem(capacity=3) as system:
        stage, free = await system.spawn(Stage), await system.spawn(Stage, capacity=0)
        assert system._find_cell(stage.address).capacity == 3  # type: ignore[union-attr]
        assert system._find_cell(free.address).capacity == 0  # type: ignore[union-attr]
        assert await stage.ask(Do(lambda _: 1)) == 1
