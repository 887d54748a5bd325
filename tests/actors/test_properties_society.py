"""Many actors that do anything at any time, and the properties that hold when they are idle again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors import ActorStoppedError, ActorSystem
from recado.actors.runtime.state import CellState
from recado.actors.supervision.lifecycle import local_cell

from .society import GOSSIP, STRATEGIES, Character, Ledger, Order
from .stories import told

DEEDS = [
    "nothing", "nothing", "child", "child", "child", "fail", "fail", "fail otherwise", "stop", "stop other",
    "monitor", "tie", "untie", "unlink", "link", "gossip",
]  # fmt: skip

STEPS = st.lists(
    st.tuples(
        st.sampled_from(DEEDS),
        st.integers(0, 11),  # who
        st.integers(0, 11),  # with whom
        st.integers(0, len(STRATEGIES) - 1),
        st.sampled_from([None, None, 0.0, 0.01, 3.0]),  # a pause in the handler
        st.sampled_from([None, None, 0.0, 0.005, 1.0]),  # before the next step
        st.booleans(),  # asked or told
    ),
    max_size=25,
)
Step = tuple[str, int, int, int, float | None, float | None, bool]


@settings(max_examples=400, deadline=None)
@given(
    steps=STEPS, seed=st.none() | st.integers(0, 10_000), hooks=st.sampled_from([None, 0.0, 0.01])
)
def test_when_all_has_come_to_rest_nobody_hangs_and_nothing_is_lost(
    steps: list[Step], seed: int | None, hooks: float | None
) -> None:
    ledgers: list[Ledger] = []

    async def story(system: ActorSystem) -> None:
        ledger = Ledger(system)
        ledgers.append(ledger)
        for number in range(2):
            ledger.refs.append(
                await system.spawn(
                    Character(ledger, hooks).make,
                    supervisor_strategy=STRATEGIES[number],
                    name=f"{number}",
                )
            )
        asks = []
        for number, (what, who, whom, strategy, pause, then, asked) in enumerate(steps):
            refs = ledger.refs
            order = Order(number, what, refs[whom % len(refs)], strategy, pause)
            if asked:
                asks.append(refs[who % len(refs)].ask_future(order, timeout=900))
            else:
                refs[who % len(refs)].tell(order)
            if then is not None:
                await asyncio.sleep(then)
        await asyncio.sleep(500)
        await check_rest(system, ledger, len(steps))
        for each in asks:
            assert each.done(), "an ask hangs"
            each.exception()

    told(story, seed)
    ledger = ledgers[0]
    assert not ledger.crowded, "two at a time"
    assert not ledger.disorder
    for ref in ledger.refs:
        cell = local_cell(ref)
        assert cell is not None
        assert cell.state is CellState.STOPPED
        assert cell.task is None
    assert ledger.begun == ledger.ended, "an instance that began was not told of its end"
    assert len(ledger.system.registry) == 0


async def check_rest(system: ActorSystem, ledger: Ledger, steps: int) -> None:
    living = set(system.registry)
    assert living <= set(ledger.refs)
    for number, ref in enumerate(ledger.refs):
        cell = local_cell(ref)
        assert cell is not None
        assert cell.is_started == (ref in living)
        if ref in living:
            assert await ref.ask(Order(steps + number, "nothing"), timeout=50) == "done"
            assert not cell.is_stopping
            supervisor: Any = cell.supervisor
            if supervisor is not None:
                assert supervisor in living, "its supervisor has stopped without it"
                above = local_cell(supervisor)
                assert above is not None
                assert ref in above.children
            for child in cell.children:
                below = local_cell(child)
                assert below is not None
                assert below.is_started, "a child that is gone is still supervised"
        else:
            with pytest.raises(ActorStoppedError):
                await ref.ask(Order(steps + number, "nothing"), timeout=50)
    gossip = {number for number in (ledger.handled + ledger.dead) if number >= GOSSIP}
    for number in {*range(steps), *gossip}:
        assert ledger.handled[number] + ledger.dead[number] == 1, f"order {number}"
    for number in gossip:
        assert all(number % GOSSIP + GOSSIP * again in gossip for again in (1, 2, 3))
    for (watcher, watched), times in ledger.downs.items():
        assert watched not in living, f"{watcher} heard that {watched} is down"
        assert times >= 1
    for watcher, watched in ledger.watches:
        assert watcher not in living or watched in living, "nobody told who watched"
