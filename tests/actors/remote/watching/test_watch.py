"""Bonds between actors of two nodes: entered, ended, broken by silence, made again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors import Address, Down, Exhausted, NoSuchActor, Unreachable
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
from recado.actors.remote.watching.watch import (
    NO_UID,
    Bond,
    Kind,
    Marks,
    Orphan,
    Told,
    Vigil,
    undelivered,
)

Ref = ActorRef[Any]


def ref(node: str, name: str, uid: int = 0) -> Ref:
    return ActorRef(Address(node, name, uid), None, None)  # type: ignore[arg-type]


HERE, THERE = ref("here", "a", 1), ref("there", "b", 2)
NAMED = ref("there", "b")
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
            assert vigil.sent(THERE, Failed(HERE, ERROR)).called == "by name"
        end = next(end for way, end in begins[1] if way == "sent")
        assert vigil.sent(THERE, end).called == "by name"
        assert vigil.sent(THERE, end).called == ""


@pytest.mark.parametrize("begins", [begins for begins, _ in BONDS])
def test_a_bond_by_name_is_with_one_incarnation(begins: CellSignal) -> None:  # V6
    vigil = Vigil(10)
    token = vigil.sent(NAMED, begins).token
    assert vigil.back("there", reborn=False) == [Told(NAMED, begins)]
    assert said(vigil.sent(NAMED, begins)) == (token, 0)  # nothing is known of it yet
    vigil.identified(HERE, NAMED, 7, token + 1)  # that is about another bond
    assert said(vigil.sent(NAMED, begins)) == (token, 0)
    vigil.identified(HERE, NAMED, 7, token)
    vigil.identified(HERE, NAMED, 8, token)
    for reborn in (False, True):
        assert vigil.back("there", reborn=reborn) == [Told(NAMED, begins)]
        assert said(vigil.sent(NAMED, begins)) == (token, 7)


def said(marks: Marks) -> tuple[int, int]:
    return marks.token, marks.uid


PROBED = [
    (Watch(HERE), Down(NAMED, ERROR)),
    (Link(HERE), Ended(NAMED, ERROR)),
    (Tie(HERE), Exit(NAMED, ERROR)),
]


@pytest.mark.parametrize(("begins", "end"), PROBED)
def test_the_answer_to_a_probe_ends_a_bond_with_the_last_life(  # V6
    begins: CellSignal, end: CellSignal
) -> None:
    vigil = Vigil(10)
    token = vigil.sent(NAMED, begins).token
    for reborn in (True, False, True):  # each time it is asked again
        assert vigil.back("there", reborn=reborn) == [Told(NAMED, begins)]
        probe, uid = said(vigil.sent(NAMED, begins))
        assert uid == NO_UID
        assert probe != token
    assert vigil.heard(HERE, end, token=probe)
    assert vigil.bonds == {}


@pytest.mark.parametrize(("begins", "end"), PROBED)
def test_a_bond_with_the_present_life_outlasts_a_probe(  # V6
    begins: CellSignal, end: CellSignal
) -> None:
    vigil = Vigil(10)
    token = vigil.sent(NAMED, begins).token
    vigil.back("there", reborn=True)
    probe, _ = said(vigil.sent(NAMED, begins))
    vigil.identified(HERE, NAMED, 7, token)
    assert not vigil.heard(HERE, end, token=probe)
    assert said(vigil.sent(NAMED, begins)) == (token, 7)
    assert vigil.heard(HERE, end, token=token)
    assert vigil.bonds == {}


def test_actors_that_were_bound_twice_before_the_next_life_of_their_node_are_dead() -> None:  # V6
    vigil = Vigil(10)
    for begins, _ in BONDS:
        vigil.sent(NAMED, begins)
        vigil.sent(NAMED, begins)
    effects = vigil.back("there", reborn=True)
    told = [effect.signal for effect in effects if isinstance(effect, Told)]
    assert [type(signal) for signal in told] == [Down, Ended, Exhausted, Exit]
    for signal in told:
        assert isinstance(signal, Down | Ended | Exhausted | Exit)
        assert isinstance(signal.reason, NoSuchActor)
        assert signal.ref == NAMED
    assert vigil.bonds == {}


@pytest.mark.parametrize(
    ("begins", "ends", "end"),
    [
        (Watch(HERE), Unwatch(HERE), Down(NAMED, None)),
        (Link(HERE), Unlink(HERE), Ended(NAMED, None)),
    ],
)
def test_the_end_of_an_earlier_bond_is_not_that_of_the_next(  # V7
    begins: CellSignal, ends: CellSignal, end: CellSignal
) -> None:
    vigil = Vigil(10)
    first = vigil.sent(NAMED, begins).token
    vigil.sent(NAMED, ends)
    second = vigil.sent(NAMED, begins).token
    assert not vigil.heard(HERE, end, token=first)
    assert len(vigil) == 1
    assert vigil.heard(HERE, end, token=second)
    assert len(vigil) == 0
    assert vigil.heard(HERE, end, token=second)  # the actor knows that it is not bound


def test_what_follows_from_a_bond_has_its_token() -> None:  # V7
    vigil = Vigil(10)
    vigil.heard(HERE, Watch(THERE), "by name", 5)
    vigil.heard(HERE, Watch(THERE), "by name", 6)  # it was made anew
    assert vigil.sent(THERE, Down(HERE, None)) == Marks(6, "by name")


def test_who_is_tied_by_name_makes_the_tie_again_by_name() -> None:  # V3, V5
    maker, other = Vigil(10), Vigil(10)
    token = maker.sent(NAMED, Tie(HERE)).token
    other.heard(THERE, Tie(HERE), "by name", token)
    assert other.sent(HERE, Tie(THERE)) == Marks(token, "by name")
    assert maker.heard(HERE, Tie(NAMED), token=token)
    assert maker.bonds["there"] == {Bond(Kind.TIED, HERE, NAMED): Marks(token)}


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
