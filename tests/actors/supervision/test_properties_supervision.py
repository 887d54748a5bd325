"""Properties of supervision for any sequence of failures: exact budgets, groups in order, no zombies."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors.actor import Actor
from recado.actors.actor_events import Restarted, Stopped
from recado.actors.errors import ActorError, ActorInterruptedError, ActorStoppedError
from recado.actors.ref import ActorRef
from recado.actors.supervision.lifecycle import local_cell
from recado.actors.supervision.signals import ChildFailed, Down, Signal
from recado.actors.supervision.strategy import AllForOne, OneForOne, SupervisorStrategy
from recado.actors.system import ActorSystem
from recado.actors.testkit import Probe
from tests.actors.stories import BrokenError, Diary, Listener, Note, told

# Sums of these are exact, so that the edge of a window can be hit.
GAPS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 4.0])
WINDOWS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0, None])
SEEDS = st.none() | st.integers(0, 10_000)


def allowed(moments: list[float], most: int | None, within: float | None) -> int:
    """How many failures at these moments are answered by a restart, counted the simplest way."""
    restarts: list[float] = []
    for now in moments:
        recent = [then for then in restarts if within is None or now - then < within]
        if most is not None and len(recent) >= most:
            break
        restarts.append(now)
    return len(restarts)


@settings(max_examples=300, deadline=None)
@given(
    gaps=st.lists(GAPS, min_size=1, max_size=12),
    most=st.none() | st.integers(0, 3),
    within=WINDOWS,
    members=st.integers(0, 3),
    seed=SEEDS,
    data=st.data(),
)
def test_budgets_are_exact_at_the_edge_of_the_window(
    gaps: list[float],
    most: int | None,
    within: float | None,
    members: int,
    seed: int | None,
    data: st.DataObject,
) -> None:
    """`members` 0 is one for one; else so many others are in the group, and the budget is the group's."""
    strategy: SupervisorStrategy = (AllForOne if members else OneForOne)(most, within)
    failing = [data.draw(st.integers(0, members)) for _ in gaps]

    async def story(system: ActorSystem) -> int:
        restarts: list[Restarted] = []
        system._listeners.append(
            lambda event: restarts.append(event) if isinstance(event, Restarted) else None
        )
        refs = [
            await system.spawn(lambda: Listener(Diary()), supervisor_strategy=strategy)
            for _ in range(members + 1)
        ]
        for number, gap in enumerate(gaps):
            await asyncio.sleep(gap)
            now = system._clock.time()
            refs[failing[number]].tell(Note(0, number, fails=True))
            for _ in range(40):  # turns of the loop, in which no time passes
                await asyncio.sleep(0)
            assert system._clock.time() == now
        lives = len(system.registry)
        assert lives in (0, members + 1)
        assert len(restarts) % (members + 1) == 0
        answered = len(restarts) // (members + 1)
        assert bool(lives) == (answered == len(gaps))
        return answered

    moments = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    assert told(story, seed) == allowed(moments, most, within)


class Member(Listener):
    def __init__(self, number: int, diary: Diary, pause: float) -> None:
        super().__init__(diary)
        self.number = number
        self.pause = pause
        diary.life.append(f"new {number}")

    async def pre_restart(self, reason: BaseException, message: Any) -> None:
        await asyncio.sleep(self.pause)
        self.diary.life.append(f"down {self.number}")

    async def pre_start(self) -> None:
        await asyncio.sleep(self.pause)
        self.diary.life.append(f"up {self.number}")


class House(Actor[Any]):
    """It supervises a group and some others, of whom no failure concerns the group."""

    def __init__(self, group: AllForOne, members: list[Member], others: list[Listener]) -> None:
        self.group = group
        self.members = members
        self.others = others
        self.refs: list[ActorRef[Note]] = []
        self.other_refs: list[ActorRef[Note]] = []

    async def pre_start(self) -> None:
        for member in self.members:
            again = (member.number, member.diary, member.pause)
            self.refs.append(
                await self.start_link(partial(Member, *again), supervisor_strategy=self.group)
            )
            self.other_refs.append(
                await self.start_link(
                    lambda: Listener(Diary()), supervisor_strategy=OneForOne(max_restarts=None)
                )
            )


@settings(max_examples=150, deadline=None)
@given(
    members=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([None, 0.0, 0.01])), max_size=8
    ),
    pause=st.sampled_from([0.0, 0.01]),
    seed=SEEDS,
)
def test_a_group_is_taken_down_in_reverse_order_and_put_up_in_order(
    members: int,
    steps: list[tuple[int, bool, float | None]],
    pause: float,
    seed: int | None,
) -> None:
    diary = Diary()  # of all of them: who is up when
    notes = 0

    async def story(system: ActorSystem) -> None:
        nonlocal notes
        group = AllForOne(max_restarts=None)
        house = House(group, [Member(number, diary, pause) for number in range(members)], [])
        diary.life.clear()
        await system.spawn(lambda: house)
        assert diary.life == [
            f"{what} {number}" for number in range(members) for what in ("new", "up")
        ]
        diary.life.clear()
        for number, (target, waits, handler) in enumerate(steps):
            house.refs[target % members].tell(Note(target % members, number, handler, True))
            house.other_refs[target % members].tell(Note(0, number, handler, True))
            if waits:
                await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        answers = [await ref.ask(Note(9, 1), timeout=10) for ref in house.refs]
        assert answers == [1] * members

    told(story, seed)
    once = [f"down {number}" for number in reversed(range(members))]
    once += [f"{what} {number}" for number in range(members) for what in ("new", "up")]
    restarts, rest = divmod(len(diary.life), len(once))
    assert rest == 0
    assert diary.life == once * restarts
    assert bool(restarts) == bool(steps)
    assert restarts <= len(steps)
    assert sorted(number for sender, number in diary.notes if sender != 9) == list(
        range(len(steps))
    )


class Frail(Actor[Note]):
    """It breaks where it is told to, in which of its lives."""

    def __init__(
        self,
        lives: list[str],
        breaks: list[str],
        children: int,
        by: type[BaseException] = BrokenError,
    ) -> None:
        lives.append("made")
        self.breaks = breaks[len(lives) - 1] if len(lives) <= len(breaks) else "never"
        self.breaks_by = by
        self.child_count = children
        if self.breaks == "made":
            raise by("made")

    async def pre_start(self) -> None:
        for _ in range(self.child_count):
            await self.start_link(lambda: Listener(Diary()))
        if self.breaks == "at once":
            raise self.breaks_by("at once")
        await asyncio.sleep(0.01)
        if self.breaks == "later":
            raise self.breaks_by("later")

    def post_restart(self, reason: BaseException) -> None:
        if self.breaks == "post":
            raise self.breaks_by("post")

    def receive(self, message: Note) -> None:
        if message.fails:
            raise BrokenError("asked to")
        self.reply_if_asked(message.number)


@settings(max_examples=40, deadline=None)
@given(
    how=st.sampled_from(["made", "at once", "later"]),
    children=st.integers(0, 2),
    supervised=st.booleans(),
    seed=SEEDS,
)
def test_who_could_not_be_started_was_never_there(
    how: str, children: int, supervised: bool, seed: int | None
) -> None:
    async def story(system: ActorSystem) -> weakref.ref[Any]:
        stopped: list[object] = []
        boss = await Probe[Any].spawn(system) if supervised else None
        supervisor = boss.ref if boss is not None else None
        before = len(system.registry)
        system._listeners.append(
            lambda event: stopped.append(event.ref) if isinstance(event, Stopped) else None
        )
        starting = asyncio.ensure_future(
            system.spawn(lambda: Frail([], [how], children), name="frail", supervisor=supervisor)
        )
        await asyncio.sleep(0)
        early = system.registry.by_name("frail")
        if early is not None:
            early.tell(Note(0, 0))
            asked = early.ask_future(Note(0, 1), timeout=5)
        with pytest.raises(BrokenError):
            await starting
        if early is not None:
            with pytest.raises(ActorStoppedError):
                await asked
        assert len(system.registry) == before
        assert system.registry.by_name("frail") is None
        if boss is not None:
            cell = local_cell(boss.ref)
            assert cell is not None
            assert cell.children == ()
            await boss.expect_no_message(within=5)
        ref = await system.spawn(lambda: Frail([], [], 0), name="frail", supervisor=supervisor)
        assert await ref.ask(Note(0, 7)) == 7
        assert early not in stopped
        return (
            weakref.ref(local_cell(early))
            if early is not None
            else weakref.ref(BrokenError("nobody"))
        )

    died = told(story, seed)
    gc.collect()
    assert died() is None


@settings(max_examples=150, deadline=None)
@given(
    breaks=st.lists(st.sampled_from(["never", "made", "at once", "later", "post"]), max_size=5),
    children=st.integers(0, 2),
    most=st.integers(0, 3),
    by=st.sampled_from([BrokenError, asyncio.CancelledError]),
    seed=SEEDS,
)
def test_restarts_that_fail_are_of_the_same_budget_and_leave_nobody_behind(
    breaks: list[str], children: int, most: int, by: type[BaseException], seed: int | None
) -> None:
    """The first life is without fault, then the actor is told to fail; who breaks on the way fails again."""
    lives: list[str] = []

    async def story(system: ActorSystem) -> None:
        probe = await Probe[Any].spawn(system)
        ref = await system.spawn(
            lambda: Frail(lives, ["never", *breaks], children, by),
            name="frail",
            supervisor_strategy=OneForOne(most, within=1_000),
        )
        probe.monitor(ref)
        ref.tell(Note(0, 0, fails=True))
        asked = ref.ask_future(Note(0, 1), timeout=500)
        bad = next((at for at, how in enumerate(breaks) if how == "never"), len(breaks))
        if bad < most:
            assert await asked == 1
            assert len(lives) == 2 + bad
            assert len(system.registry) == 2 + children
        else:
            reason = (await probe.expect(Down, within=100)).reason
            assert isinstance(reason, BrokenError | ActorInterruptedError)
            with pytest.raises(ActorError):
                await asked
            assert len(lives) == 1 + most
            assert list(system.registry) == [probe.ref]
            assert system._clock.time() < 100
        await asyncio.sleep(5)

    told(story, seed)


class Boss(Actor[Any]):
    """A supervisor under a supervisor: it fails for what it cannot keep alive (or, if `lenient`, does not)."""

    def __init__(self, depth: int, diary: Diary, most: int, lenient: bool) -> None:
        self.depth = depth
        self.diary = diary
        self.most = most
        self.lenient = lenient

    async def pre_start(self) -> None:
        self.diary.life.append(f"up {self.depth}")
        strategy = OneForOne(self.most, within=None)
        if self.depth:
            again = (self.depth - 1, self.diary, self.most, self.lenient)
            await self.start_link(lambda: Boss(*again), supervisor_strategy=strategy)
        else:
            await self.start_link(
                lambda: Listener(self.diary), name="worker", supervisor_strategy=strategy
            )

    def on_signal(self, signal: Signal) -> Any:
        self.diary.life.append(f"exhausted {self.depth}")
        assert isinstance(signal, ChildFailed)
        return None if self.lenient else super().on_signal(signal)


@settings(max_examples=60, deadline=None)
@given(depth=st.integers(0, 2), most=st.integers(0, 2), seed=SEEDS)
def test_what_a_supervisor_cannot_keep_alive_is_its_own_failure(
    depth: int, most: int, seed: int | None
) -> None:
    """Each floor restarts the one below `most` times: (most + 1) ** floors failures bring the house down."""
    diary = Diary()

    async def story(system: ActorSystem) -> None:
        await system.spawn(
            lambda: Boss(depth, diary, most, False),
            supervisor_strategy=OneForOne(most, within=None),
        )
        failures = (most + 1) ** (depth + 2)
        for number in range(failures):
            assert system.registry.by_name("worker") is not None
            system.actor("worker").tell(Note(0, number, fails=True))
            await asyncio.sleep(1)
        assert len(system.registry) == 0

    told(story, seed)
    floors = range(depth + 1)
    assert [diary.life.count(f"exhausted {floor}") for floor in floors] == [
        (most + 1) ** (depth + 1 - floor) for floor in floors
    ]
    assert [diary.life.count(f"up {floor}") for floor in floors] == [
        (most + 1) ** (depth + 1 - floor) for floor in floors
    ]
