"""What makes actors testable: time that passes at once, an order that a seed decides, and probes.

    def test_a_session_times_out() -> None:
        async def story() -> None:
            async with ActorSystem("test", dispatcher=Shuffled(seed=7)) as system:
                probe = await Probe.spawn(system)
                session = await system.spawn(lambda: Session(probe.ref))
                probe.monitor(session)
                assert (await probe.expect(Down, within=60)).reason is None

        run(story())         # takes no time, and the same way each time

TK1  In `run`, time is a number: when nobody can go on, it leaps to what is due next. Nothing waits for a clock.
TK2  With Shuffled, which actor goes next, and how far, is decided by the seed alone. Messages of one sender to
     one actor stay in order, as everywhere.
TK3  A probe keeps what it is told until somebody expects it, in order.

Threads live by the real time, so dispatchers with threads do not belong in `run`.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections import deque
from collections.abc import Coroutine, Mapping
from random import Random
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from .actor import Actor
from .errors import NoSenderError

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

    from .ref import ActorRef, Reply
    from .runtime.cell import Cell
    from .supervision.signals import Signal
    from .system import ActorSystem

T = TypeVar("T")
M = TypeVar("M")

# Real seconds for threads, such as those of asyncio.to_thread, to come back in when nothing else can happen.
THREAD_WAIT_S = 10.0
MESSAGES_MAX = 4
YIELD_RATIO = 0.3


class DeadlockError(AssertionError):
    """Everybody waits, and nothing is due: it would go on for ever."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own, in no time (TK1)."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_VirtualTimeSelector(self))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
        # What is due is what is before `time() + resolution`. Far from the beginning, a nanosecond is nothing.
        self._clock_resolution = max(1e-9, math.ulp(self._now))


class _VirtualTimeSelector(selectors.BaseSelector):
    """A selector that lets the time pass instead of waiting for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(THREAD_WAIT_S if timeout is None else 0)
        if not events:
            if timeout is None:
                raise DeadlockError("everybody waits, and nothing is due")
            self._loop.advance(max(timeout, 0))
        return events

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class ShuffledDispatcher:
    """A dispatcher whose next step is drawn by lot (TK2)."""

    def __init__(self, seed: int, messages_max: int = MESSAGES_MAX) -> None:
        """An actor handles 1 to `messages` messages at a time."""
        self._random = Random(seed)
        self._messages_max = messages_max
        self._ready: list[Cell] = []

    def dispatch(self, cell: Cell) -> None:
        if get_ident() != cell.system._thread_id:
            cell.system._loop.call_soon_threadsafe(self.dispatch, cell)
        elif cell.claim():
            self._ready.append(cell)
            cell.system._loop.call_soon(self._step, cell.system._loop)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        chance = self._random
        if chance.random() < YIELD_RATIO:  # to let tasks and timers go first, now and then
            loop.call_soon(self._step, loop)
        else:
            cell = self._ready.pop(chance.randrange(len(self._ready)))
            cell.run(chance.randint(1, self._messages_max))


class ReceivedMessage(NamedTuple):
    message: Any
    sender: ActorRef[Any] | None
    reply: Reply | None


class Probe(Generic[M]):
    """An actor that does nothing but listen; the test is its behaviour."""

    def __init__(self) -> None:
        """Use `spawn`."""
        self.last_received: ReceivedMessage | None = None
        """What was expected last."""
        self._received: deque[ReceivedMessage] = deque()
        self._arrived: asyncio.Event = asyncio.Event()
        self._actor = _ProbeActor(self)

    @classmethod
    async def spawn(cls, system: ActorSystem, name: str = "") -> Self:
        probe = cls()
        await system.spawn(lambda: probe._actor, name=name)
        return probe

    @property
    def ref(self) -> ActorRef[Any]:
        return self._actor.ref

    def monitor(self, ref: ActorRef[Any]) -> None:
        """Its Down can be expected then."""
        self._actor.monitor(ref)

    def record(self, received: ReceivedMessage) -> None:
        self._received.append(received)
        self._arrived.set()

    async def next(self, within: float = 3.0) -> Any:
        """What comes next, whatever it is. AssertionError if nothing does."""
        try:
            async with asyncio.timeout(within):
                while not self._received:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"nothing came within {within:g} s") from None
        self.last_received = self._received.popleft()
        return self.last_received.message

    async def expect(self, message_class: type[T], within: float = 3.0) -> T:
        """What comes next; AssertionError if nothing does, or something of another class."""
        message = await self.next(within)
        assert isinstance(message, message_class), (
            f"{message!r} came, and not a {message_class.__name__}"
        )
        return message

    async def expect_no_message(self, within: float = 0.1) -> None:
        """AssertionError if anything comes, or has come."""
        try:
            message = await self.next(within)
        except AssertionError:
            return
        raise AssertionError(f"{message!r} came, and nothing was to come")

    @property
    def sender(self) -> ActorRef[Any] | None:
        """Of what was expected last."""
        return None if self.last_received is None else self.last_received.sender

    def reply(self, value: Any) -> None:
        """To what was expected last."""
        if self.last_received is not None and self.last_received.reply is not None:
            self.last_received.reply.complete(value)
        elif self.sender is not None:
            self.sender.tell(value)
        else:
            raise NoSenderError("the probe replies, and nobody has asked")


class _ProbeActor(Actor[Any]):
    def __init__(self, probe: Probe[Any]) -> None:
        self._probe = probe

    def receive(self, message: Any) -> None:
        self._probe.record(ReceivedMessage(*self._cell.envelope))

    def on_signal(self, signal: Signal) -> None:
        self._probe.record(ReceivedMessage(signal, None, None))
