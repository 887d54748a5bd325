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
from .errors import NobodyAsked

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

    from .failing.signals import Signal
    from .ref import ActorRef, Reply
    from .running.cell import Cell
    from .system import ActorSystem

T = TypeVar("T")
M = TypeVar("M")

# Real seconds for threads, such as those of asyncio.to_thread, to come back in when nothing else can happen.
THREADS_PATIENCE = 10.0
MESSAGES_MOST = 4
YIELDS = 0.3


class Stuck(AssertionError):
    """Everybody waits, and nothing is due: it would go on for ever."""


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own, in no time (TK1)."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        return self._now

    def leap(self, seconds: float) -> None:
        self._now += seconds
        # What is due is what is before `time() + resolution`. Far from the beginning, a nanosecond is nothing.
        self._clock_resolution = max(1e-9, math.ulp(self._now))


class _Leaping(selectors.BaseSelector):
    """A selector that lets the time pass instead of waiting for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(THREADS_PATIENCE if timeout is None else 0)
        if not events:
            if timeout is None:
                raise Stuck("everybody waits, and nothing is due")
            self._loop.leap(max(timeout, 0))
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


class Shuffled:
    """A dispatcher whose next step is drawn by lot (TK2)."""

    def __init__(self, seed: int, messages: int = MESSAGES_MOST) -> None:
        """An actor handles 1 to `messages` messages at a time."""
        self._random = Random(seed)
        self._messages = messages
        self._ready: list[Cell] = []

    def dispatch(self, cell: Cell) -> None:
        if get_ident() != cell.system.home:
            cell.system.loop.call_soon_threadsafe(self.dispatch, cell)
        elif cell.claim():
            self._ready.append(cell)
            cell.system.loop.call_soon(self._step, cell.system.loop)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        chance = self._random
        if chance.random() < YIELDS:  # to let tasks and timers go first, now and then
            loop.call_soon(self._step, loop)
        else:
            cell = self._ready.pop(chance.randrange(len(self._ready)))
            cell.run(chance.randint(1, self._messages))


class Heard(NamedTuple):
    message: Any
    sender: ActorRef[Any] | None
    reply: Reply | None


class Probe(Generic[M]):
    """An actor that does nothing but listen; the test is its behaviour."""

    def __init__(self) -> None:
        """Use `spawn`."""
        self.last: Heard | None = None
        """What was expected last."""
        self._heard: deque[Heard] = deque()
        self._news: asyncio.Event = asyncio.Event()
        self._actor = _Ear(self)

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

    def hear(self, heard: Heard) -> None:
        self._heard.append(heard)
        self._news.set()

    async def next(self, within: float = 3.0) -> Any:
        """What comes next, whatever it is. AssertionError if nothing does."""
        try:
            async with asyncio.timeout(within):
                while not self._heard:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"nothing came within {within:g} s") from None
        self.last = self._heard.popleft()
        return self.last.message

    async def expect(self, kind: type[T], within: float = 3.0) -> T:
        """What comes next; AssertionError if nothing does, or something of another class."""
        message = await self.next(within)
        assert isinstance(message, kind), f"{message!r} came, and not a {kind.__name__}"
        return message

    async def expect_nothing(self, within: float = 0.1) -> None:
        """AssertionError if anything comes, or has come."""
        try:
            message = await self.next(within)
        except AssertionError:
            return
        raise AssertionError(f"{message!r} came, and nothing was to come")

    @property
    def sender(self) -> ActorRef[Any] | None:
        """Of what was expected last."""
        return None if self.last is None else self.last.sender

    def reply(self, value: Any) -> None:
        """To what was expected last."""
        if self.last is not None and self.last.reply is not None:
            self.last.reply.complete(value)
        elif self.sender is not None:
            self.sender.tell(value)
        else:
            raise NobodyAsked("the probe replies, and nobody has asked")


class _Ear(Actor[Any]):
    def __init__(self, probe: Probe[Any]) -> None:
        self._probe = probe

    def receive(self, message: Any) -> None:
        self._probe.hear(Heard(*self._cell.letter))

    def on_signal(self, signal: Signal) -> None:
        self._probe.hear(Heard(signal, None, None))
