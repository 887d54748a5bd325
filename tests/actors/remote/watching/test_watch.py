"""Bonds between actors of two nodes: entered, ended, broken by silence, made again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors import Address, Down, Exhausted, Unreachable
from recado.actors.failing.signals import (
    CellSignal,
    Ended,
    Exit,
    Failed,
    Link,
    Restart,
    Stop,
    Tie,
    Unlink,
    Untie,
    Unwatch,
    Watch,
)
from recado.actors.ref import ActorRef
from recado.actors.remote.faults import Full
from recado.actors.remote.watching.watch import Orphan, Told, Vigil, undelivered

Ref = ActorRef[Any]


def ref(node: str, name: str) -> Ref:
    return ActorRef(Address(node, name), None, None)  # type: ignore[arg-type]


HERE, THERE = ref("here", "a"), ref("there", "b")
ERROR = ValueError("no")

# What makes a bond, and what ends it: each as it is sent by us, and as it comes.
BONDS: list[tuple[CellSignal, list[tuple[str, CellSignal]]]] = [
    (Watch(HERE), [("sent", Unwatch(HERE)), ("heard", Down(THERE, None))]),
    (Link(HERE), [("sent", Unlink(HERE)), ("heard", Ended(THERE, None))]),
    (
        Tie(HERE),
        [
            ("sent", Untie(HERE)),
            ("sent", Exit(HERE, ERROR)),
            ("heard", Untie(THERE)),
            ("heard", Exit(THERE, ERROR)),
        ],
    ),
]
MADE_THERE: list[tuple[CellSignal, list[tuple[str, CellSignal]]]] = [
    (Watch(THERE), [("heard", Unwatch(THERE)), ("sent", Down(HERE, None))]),
    (Link(THERE), [("heard", Unlink(THERE)), ("sent", Ended(HERE, None))]),
    (Tie(THERE), [("heard", Untie(THERE)), ("sent", Exit(HERE, ERROR))]),
]


def pass_by(vigil: Vigil, way: str, signal: CellSignal) -> None:
    if way == "sent":
        vigil.sent(THERE, signal)
    else:
        vigil.heard(HERE, signal)


@pytest.mark.parametrize(("begins", "ends"), BONDS)
def test_bonds_that_are_made_here(begins: CellSignal, ends: list[tuple[str, CellSignal]]) -> None:
    for way, end in ends:
        vigil = Vigil(10)
        vigil.sent(THERE, begins)
        vigil.sent(THERE, begins)
        assert (len(vigil), list(vigil.bonds)) == (1, ["there"])
        pass_by(vigil, way, end)
        assert (len(vigil), vigil.bonds) == (0, {})
        pass_by(vigil, way, end)
        vigil.sent(THERE, begins)
        vigil.unsent(THERE, begins)
        assert vigil.bonds == {}


@pytest.mark.parametrize(("begins", "ends"), MADE_THERE)
def test_bonds_that_are_made_there(begins: CellSignal, ends: list[tuple[str, CellSignal]]) -> None:
    for way, end in ends:
        vigil = Vigil(1)
        vigil.heard(HERE, begins)
        assert len(vigil) == 1
        pass_by(vigil, way, end)
        assert vigil.bonds == {}
        vigil.heard(HERE, begins)  # there is room for it again


def test_other_signals_bind_nobody() -> None:
    vigil = Vigil(10)
    for signal in (Restart(ERROR), Stop(None), Failed(HERE, ERROR)):
        vigil.sent(THERE, signal)
        vigil.heard(HERE, signal)
        vigil.unsent(THERE, signal)
    assert vigil.bonds == {}


def test_silence_is_told_to_everybody_once() -> None:
    vigil = Vigil(10)
    for signal, _ in BONDS:
        vigil.sent(THERE, signal)
    for signal, _ in MADE_THERE[:2]:
        vigil.heard(HERE, signal)
    told: list[CellSignal] = []
    orphans: list[Orphan] = []
    for effect in vigil.silent("there", "silent"):
        if isinstance(effect, Told):
            assert effect.ref == HERE
            told.append(effect.signal)
        else:
            orphans.append(effect)
    assert [type(signal) for signal in told] == [Down, Ended, Exhausted, Exit, Unwatch]
    assert all(
        isinstance(signal.reason, Unreachable)
        for signal in told
        if isinstance(signal, Down | Ended | Exhausted | Exit)
    )
    assert [(orphan.child, orphan.supervisor, orphan.parted) for orphan in orphans] == [
        (HERE, THERE, True)
    ]
    assert vigil.silent("there", "silent") == []
    vigil.heard(HERE, Watch(THERE))  # none of those that others made is counted any more


def test_who_comes_back_is_bound_again() -> None:
    vigil = Vigil(10)
    for signal, _ in BONDS:
        vigil.sent(THERE, signal)
    again = [Told(THERE, signal) for signal, _ in BONDS]
    assert vigil.back("there", reborn=False) == again
    assert vigil.back("there", reborn=True) == again
    assert vigil.back("elsewhere", reborn=True) == []


def test_those_who_bound_themselves_in_another_life_are_gone() -> None:
    vigil = Vigil(10)
    vigil.heard(HERE, Watch(THERE))
    vigil.heard(HERE, Link(THERE))
    [doubt] = vigil.back("there", reborn=False)
    assert isinstance(doubt, Orphan)
    assert not doubt.parted
    unwatch, orphan = vigil.back("there", reborn=True)
    assert unwatch == Told(HERE, Unwatch(THERE))
    assert isinstance(orphan, Orphan)
    assert orphan.parted
    assert vigil.bonds == {}


def test_bonds_that_others_make_are_bounded() -> None:
    vigil = Vigil(2)
    for name in ("x", "y"):
        vigil.heard(HERE, Watch(ref("there", name)))
    with pytest.raises(Full):
        vigil.heard(HERE, Watch(ref("other", "z")))
    assert list(vigil.bonds) == ["there"]
    for name in ("p", "q", "r"):
        vigil.sent(ref("there", name), Watch(HERE))  # our own are not


def test_who_was_bound_by_name_is_called_so() -> None:
    for begins, (_, _ends) in zip(MADE_THERE, MADE_THERE, strict=True):
        signal = begins[0]
        vigil = Vigil(10)
        vigil.heard(HERE, signal, "by name")
        if isinstance(signal, Link):
            assert vigil.sent(THERE, Failed(HERE, ERROR)) == "by name"
        end = next(end for way, end in begins[1] if way == "sent")
        assert vigil.sent(THERE, end) == "by name"
        assert vigil.sent(THERE, end) == ""


def test_a_signal_that_did_not_arrive() -> None:
    def said(signal: CellSignal) -> list[type]:
        return [type(e.signal) for e in undelivered(THERE, signal, "away") if isinstance(e, Told)]

    assert said(Watch(HERE)) == [Down]
    assert said(Link(HERE)) == [Ended, Exhausted]
    assert said(Tie(HERE)) == [Exit]
    assert undelivered(THERE, Failed(HERE, ERROR), "away") == [Told(HERE, Stop(ERROR))]
    assert said(Unwatch(HERE)) == []


signals = st.sampled_from(
    [("sent", s) for s, _ in BONDS]
    + [("heard", s) for s, _ in MADE_THERE]
    + [end for _, ends in BONDS + MADE_THERE for end in ends]
)


@given(st.lists(signals, max_size=60))
def test_what_was_made_and_not_ended_is_there(said: list[tuple[str, CellSignal]]) -> None:
    vigil = Vigil(2)
    for way, signal in said:
        pass_by(vigil, way, signal)  # two can be made there, so none is ever too many
        assert len(vigil) == sum(map(len, vigil.bonds.values())) <= 5
        assert all(vigil.bonds.values())
    vigil.silent("there", "silent")
    assert vigil.bonds == {}
    vigil.heard(HERE, Watch(THERE))
    vigil.heard(HERE, Link(THERE))
    with pytest.raises(Full):
        vigil.heard(HERE, Watch(ref("there", "one too many")))
