"""Bonds between actors of two nodes: entered, ended, broken by silence, made again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors import Address, ChildFailed, Down, NodeUnreachableError, NoSuchActorError
from recado.actors.ref import ActorRef
from recado.actors.remote.errors import LimitExceededError
from recado.actors.remote.monitoring.relations import (
    NO_ACTOR_ID,
    OrphanedChild,
    Relation,
    RelationKind,
    RelationState,
    RelationTable,
    SignalDue,
    signal_undelivered,
)
from recado.actors.supervision.signals import (
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

Ref = ActorRef[Any]


def ref(node: str, name: str, uid: int = 0) -> Ref:
    return ActorRef(Address(node, name, uid), None, None)  # type: ignore[arg-type]


HERE, THERE = ref("here", "a", 1), ref("there", "b", 2)
NAMED = ref("there", "b")
ERROR = ValueError("no")

# The signals that create and end a relation: each as sent, and as received.
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


def pass_by(vigil: RelationTable, way: str, signal: CellSignal) -> None:
    if way == "sent":
        vigil.record_sent(THERE, signal)
    else:
        vigil.record_received(HERE, signal)


@pytest.mark.parametrize(("begins", "ends"), BONDS)
def test_bonds_that_are_made_here(begins: CellSignal, ends: list[tuple[str, CellSignal]]) -> None:
    for way, end in ends:
        vigil = RelationTable(10)
        vigil.record_sent(THERE, begins)
        vigil.record_sent(THERE, begins)
        assert (len(vigil), list(vigil.by_node)) == (1, ["there"])
        pass_by(vigil, way, end)
        assert (len(vigil), vigil.by_node) == (0, {})
        pass_by(vigil, way, end)
        vigil.record_sent(THERE, begins)
        vigil.undo_sent(THERE, begins)
        assert vigil.by_node == {}


@pytest.mark.parametrize(("begins", "ends"), MADE_THERE)
def test_bonds_that_are_made_there(begins: CellSignal, ends: list[tuple[str, CellSignal]]) -> None:
    for way, end in ends:
        vigil = RelationTable(1)
        vigil.record_received(HERE, begins)
        assert len(vigil) == 1
        pass_by(vigil, way, end)
        assert vigil.by_node == {}
        vigil.record_received(HERE, begins)  # there is space for it again


def test_other_signals_bind_nobody() -> None:
    vigil = RelationTable(10)
    for signal in (Restart(ERROR), Stop(None), Failed(HERE, ERROR)):
        vigil.record_sent(THERE, signal)
        vigil.record_received(HERE, signal)
        vigil.undo_sent(THERE, signal)
    assert vigil.by_node == {}


def test_silence_is_told_to_everybody_once() -> None:
    vigil = RelationTable(10)
    for signal, _ in BONDS:
        vigil.record_sent(THERE, signal)
    for signal, _ in MADE_THERE[:2]:
        vigil.record_received(HERE, signal)
    told: list[CellSignal] = []
    orphans: list[OrphanedChild] = []
    for effect in vigil.node_unreachable("there", "silent"):
        if isinstance(effect, SignalDue):
            assert effect.ref == HERE
            told.append(effect.signal)
        else:
            orphans.append(effect)
    assert [type(signal) for signal in told] == [Down, Ended, ChildFailed, Exit, Unwatch]
    assert all(
        isinstance(signal.reason, NodeUnreachableError)
        for signal in told
        if isinstance(signal, Down | Ended | ChildFailed | Exit)
    )
    assert [(orphan.child, orphan.supervisor, orphan.supervisor_gone) for orphan in orphans] == [
        (HERE, THERE, True)
    ]
    assert vigil.node_unreachable("there", "silent") == []
    vigil.record_received(
        HERE, Watch(THERE)
    )  # none of those that other nodes created is counted any more


def test_who_comes_back_is_bound_again() -> None:
    vigil = RelationTable(10)
    for signal, _ in BONDS:
        vigil.record_sent(THERE, signal)
    again = [SignalDue(THERE, signal) for signal, _ in BONDS]
    assert vigil.node_returned("there", restarted=False) == again
    assert vigil.node_returned("there", restarted=True) == again
    assert vigil.node_returned("elsewhere", restarted=True) == []


def test_those_who_bound_themselves_in_another_life_are_gone() -> None:
    vigil = RelationTable(10)
    vigil.record_received(HERE, Watch(THERE))
    vigil.record_received(HERE, Link(THERE))
    [doubt] = vigil.node_returned("there", restarted=False)
    assert isinstance(doubt, OrphanedChild)
    assert not doubt.supervisor_gone
    unwatch, orphan = vigil.node_returned("there", restarted=True)
    assert unwatch == SignalDue(HERE, Unwatch(THERE))
    assert isinstance(orphan, OrphanedChild)
    assert orphan.supervisor_gone
    assert vigil.by_node == {}


def test_bonds_that_others_make_are_bounded() -> None:
    vigil = RelationTable(2)
    for name in ("x", "y"):
        vigil.record_received(HERE, Watch(ref("there", name)))
    with pytest.raises(LimitExceededError):
        vigil.record_received(HERE, Watch(ref("other", "z")))
    assert list(vigil.by_node) == ["there"]
    for name in ("p", "q", "r"):
        vigil.record_sent(ref("there", name), Watch(HERE))  # our own are not


def test_who_was_bound_by_name_is_called_so() -> None:
    for begins, (_, _ends) in zip(MADE_THERE, MADE_THERE, strict=True):
        signal = begins[0]
        vigil = RelationTable(10)
        vigil.record_received(HERE, signal, "by name")
        if isinstance(signal, Link):
            assert vigil.record_sent(THERE, Failed(HERE, ERROR)).alias == "by name"
        end = next(end for way, end in begins[1] if way == "sent")
        assert vigil.record_sent(THERE, end).alias == "by name"
        assert vigil.record_sent(THERE, end).alias == ""


@pytest.mark.parametrize("begins", [begins for begins, _ in BONDS])
def test_a_bond_by_name_is_with_one_incarnation(begins: CellSignal) -> None:  # REL6
    vigil = RelationTable(10)
    token = vigil.record_sent(NAMED, begins).token
    assert vigil.node_returned("there", restarted=False) == [SignalDue(NAMED, begins)]
    assert said(vigil.record_sent(NAMED, begins)) == (token, 0)  # its uid is not known yet
    vigil.set_uid(HERE, NAMED, 7, token + 1)  # that is about another bond
    assert said(vigil.record_sent(NAMED, begins)) == (token, 0)
    vigil.set_uid(HERE, NAMED, 7, token)
    vigil.set_uid(HERE, NAMED, 8, token)
    for reborn in (False, True):
        assert vigil.node_returned("there", restarted=reborn) == [SignalDue(NAMED, begins)]
        assert said(vigil.record_sent(NAMED, begins)) == (token, 7)


def said(marks: RelationState) -> tuple[int, int]:
    return marks.token, marks.uid


PROBED = [
    (Watch(HERE), Down(NAMED, ERROR)),
    (Link(HERE), Ended(NAMED, ERROR)),
    (Tie(HERE), Exit(NAMED, ERROR)),
]


@pytest.mark.parametrize(("begins", "end"), PROBED)
def test_the_answer_to_a_probe_ends_a_bond_with_the_last_life(  # REL6
    begins: CellSignal, end: CellSignal
) -> None:
    vigil = RelationTable(10)
    token = vigil.record_sent(NAMED, begins).token
    for reborn in (True, False, True):  # each time it is probed again
        assert vigil.node_returned("there", restarted=reborn) == [SignalDue(NAMED, begins)]
        probe, uid = said(vigil.record_sent(NAMED, begins))
        assert uid == NO_ACTOR_ID
        assert probe != token
    assert vigil.record_received(HERE, end, token=probe)
    assert vigil.by_node == {}


@pytest.mark.parametrize(("begins", "end"), PROBED)
def test_a_bond_with_the_present_life_outlasts_a_probe(  # REL6
    begins: CellSignal, end: CellSignal
) -> None:
    vigil = RelationTable(10)
    token = vigil.record_sent(NAMED, begins).token
    vigil.node_returned("there", restarted=True)
    probe, _ = said(vigil.record_sent(NAMED, begins))
    vigil.set_uid(HERE, NAMED, 7, token)
    assert not vigil.record_received(HERE, end, token=probe)
    assert said(vigil.record_sent(NAMED, begins)) == (token, 7)
    assert vigil.record_received(HERE, end, token=token)
    assert vigil.by_node == {}


def test_actors_that_were_bound_twice_before_the_next_life_of_their_node_are_dead() -> None:  # REL6
    vigil = RelationTable(10)
    for begins, _ in BONDS:
        vigil.record_sent(NAMED, begins)
        vigil.record_sent(NAMED, begins)
    effects = vigil.node_returned("there", restarted=True)
    told = [effect.signal for effect in effects if isinstance(effect, SignalDue)]
    assert [type(signal) for signal in told] == [Down, Ended, ChildFailed, Exit]
    for signal in told:
        assert isinstance(signal, Down | Ended | ChildFailed | Exit)
        assert isinstance(signal.reason, NoSuchActorError)
        assert signal.ref == NAMED
    assert vigil.by_node == {}


@pytest.mark.parametrize(
    ("begins", "ends", "end"),
    [
        (Watch(HERE), Unwatch(HERE), Down(NAMED, None)),
        (Link(HERE), Unlink(HERE), Ended(NAMED, None)),
    ],
)
def test_the_end_of_an_earlier_bond_is_not_that_of_the_next(  # REL7
    begins: CellSignal, ends: CellSignal, end: CellSignal
) -> None:
    vigil = RelationTable(10)
    first = vigil.record_sent(NAMED, begins).token
    vigil.record_sent(NAMED, ends)
    second = vigil.record_sent(NAMED, begins).token
    assert not vigil.record_received(HERE, end, token=first)
    assert len(vigil) == 1
    assert vigil.record_received(HERE, end, token=second)
    assert len(vigil) == 0
    assert vigil.record_received(
        HERE, end, token=second
    )  # the actor knows that the relation has ended


def test_what_follows_from_a_bond_has_its_token() -> None:  # REL7
    vigil = RelationTable(10)
    vigil.record_received(HERE, Watch(THERE), "by name", 5)
    vigil.record_received(HERE, Watch(THERE), "by name", 6)  # it was made anew
    assert vigil.record_sent(THERE, Down(HERE, None)) == RelationState(6, "by name")


def test_who_is_tied_by_name_makes_the_tie_again_by_name() -> None:  # REL3, REL5
    maker, other = RelationTable(10), RelationTable(10)
    token = maker.record_sent(NAMED, Tie(HERE)).token
    other.record_received(THERE, Tie(HERE), "by name", token)
    assert other.record_sent(HERE, Tie(THERE)) == RelationState(token, "by name")
    assert maker.record_received(HERE, Tie(NAMED), token=token)
    assert maker.by_node["there"] == {
        Relation(RelationKind.TIED, HERE, NAMED): RelationState(token)
    }


def test_a_signal_that_did_not_arrive() -> None:
    def said(signal: CellSignal) -> list[type]:
        return [
            type(e.signal)
            for e in signal_undelivered(THERE, signal, "away")
            if isinstance(e, SignalDue)
        ]

    assert said(Watch(HERE)) == [Down]
    assert said(Link(HERE)) == [Ended, ChildFailed]
    assert said(Tie(HERE)) == [Exit]
    assert signal_undelivered(THERE, Failed(HERE, ERROR), "away") == [SignalDue(HERE, Stop(ERROR))]
    assert said(Unwatch(HERE)) == []


signals = st.sampled_from(
    [("sent", s) for s, _ in BONDS]
    + [("heard", s) for s, _ in MADE_THERE]
    + [end for _, ends in BONDS + MADE_THERE for end in ends]
)


@given(st.lists(signals, max_size=60))
def test_what_was_made_and_not_ended_is_there(said: list[tuple[str, CellSignal]]) -> None:
    vigil = RelationTable(2)
    for way, signal in said:
        pass_by(vigil, way, signal)  # two can be made there, so none is ever too many
        assert len(vigil) == sum(map(len, vigil.by_node.values())) <= 5
        assert all(vigil.by_node.values())
    vigil.node_unreachable("there", "silent")
    assert vigil.by_node == {}
    vigil.record_received(HERE, Watch(THERE))
    vigil.record_received(HERE, Link(THERE))
    with pytest.raises(LimitExceededError):
        vigil.record_received(HERE, Watch(ref("there", "one too many")))
