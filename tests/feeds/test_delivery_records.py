"""What views and acknowledgements say about who got what. The archives are a, b and c, the subscriber is x."""

from typing import NamedTuple

import msgspec
import pytest

from recado.feeds.delivery_records import DeliveryRecords, acknowledgement_weight
from recado.feeds.vector import Vector
from recado.feeds.views import (
    UNBOUNDED,
    AcknowledgementRecord,
    ArchiveRecord,
    Certainty,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
)

P = b"p" * 16
MISSED, UNCERTAIN, DELIVERED = Certainty.MISSED, Certainty.UNCERTAIN, Certainty.DELIVERED
Ranges = list[tuple[int, int, Certainty]]


def member(text: str) -> MemberId:
    """a, or a2 for its second incarnation."""
    return MemberId(text[0], (text[1:] or "1").encode() * 16)


def id_of(number: float) -> ViewId:
    """4.5 is another view of number 4."""
    return ViewId(int(number), bytes([int(number * 10) % 10]) * 16)


def view(number: float, cut: int, who: str, *previous: float, complete: bool = True) -> ViewRecord:
    """`previous_views` is the view before, unless said otherwise; 0: none."""
    members = [member(text) for text in who.split()]
    seats = tuple(ViewEntry(m, Role.ARCHIVE if m.name < "d" else Role.SUBSCRIBER) for m in members)
    before = tuple(id_of(n) for n in previous or (int(number) - 1,) if n)
    shown = View(id_of(number), seats)
    return ViewRecord(shown, Vector({P: cut}), before, complete=complete)


def partial(number: float, cut: int, who: str, *previous: float) -> ViewRecord:
    return view(number, cut, who, *previous, complete=False)


def settled(number: float, reach: int) -> ViewStability:
    return ViewStability(id_of(number), Vector({P: reach}))


def ack(who: str, number: int, start: int, upto: int, final: bool = False) -> AcknowledgementRecord:
    return AcknowledgementRecord(
        member(who), id_of(number), Vector({P: start}), Vector({P: upto}), final
    )


def said(*records: ArchiveRecord, without: str = "") -> Ranges:
    present = member(without) if without else None
    return DeliveryRecords(records).delivery_status("x", present).split(P, 1, 40)


def test_the_three_classes() -> None:
    table = DeliveryRecords([
        view(1, 0, "a x y"), view(2, 10, "a x y"), view(3, 20, "a y"), settled(3, 22), view(4, 30, "a y"),
        ack("x", 2, 0, 10),
    ])  # fmt: skip
    expected = [(1, 10, DELIVERED), (11, 22, UNCERTAIN), (23, 40, MISSED)]
    assert table.delivery_status("x").split(P, 1, 40) == expected
    assert table.last_acknowledged("x") == {P: 10}
    assert table.delivery_status("x").delivery_bound() == Vector({P: 22})


class Case(NamedTuple):
    records: list[ArchiveRecord]
    expected: Ranges


ALL: Ranges = [(1, 40, UNCERTAIN)]
UP_TO_12: Ranges = [(1, 12, UNCERTAIN), (13, 40, MISSED)]
NONE_OF_IT: Ranges = [(1, 40, MISSED)]

LIVES = {
    "never seen": Case([view(1, 0, "a y")], NONE_OF_IT),
    "not settled yet": Case([view(1, 0, "a x"), view(2, 10, "a")], ALL),
    "never acknowledged": Case([view(1, 0, "a x"), view(2, 10, "a"), settled(2, 12)], UP_TO_12),
    "left in order": Case(
        [view(1, 0, "a x"), ack("x", 1, 0, 5, final=True)], [(1, 5, DELIVERED), (6, 40, MISSED)]
    ),
    "who was in it may live on": Case(
        [view(1, 0, "a b x"), partial(2, 10, "a"), settled(2, 12)], ALL
    ),
    "until a complete view follows": Case(
        [view(1, 0, "a b x"), partial(2, 9, "a"), settled(2, 9), view(3, 10, "a b", 1, 2), settled(3, 12)],
        UP_TO_12,
    ),
    "left out by some, seen by others": Case(
        [view(1, 0, "a b x"), view(2, 5, "a"), settled(2, 6), view(2.5, 5, "b x", 1)], ALL
    ),
    "and the others go on": Case(
        [
            *(view(1, 0, "a b x"), view(2, 5, "a"), view(2.5, 5, "b x", 1)),
            *(view(3, 6, "a"), settled(3, 7)),
        ],
        ALL,
    ),
    "and those are back": Case(
        [
            *(view(1, 0, "a b x"), view(2, 5, "a"), settled(2, 6), view(2.5, 5, "b x", 1)),
            *(view(3, 10, "a b", 2, 2.5), settled(3, 12)),
        ],
        UP_TO_12,
    ),
    "it was asked to a view that came to nothing": Case(
        [
            *(view(1, 0, "a x"), view(2, 8, "a"), settled(2, 9), view(4, 10, "a", 2), settled(4, 12)),
            ViewRecord(view(3, 0, "a x").view, Vector(), (), provisional=True),
        ],
        UP_TO_12,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LIVES.values(), ids=LIVES)
def test_when_a_life_is_over(case: Case) -> None:
    """IH1, IH2."""
    assert said(*case.records) == case.expected


HOLES = {
    "one archive that was away": Case(
        [view(1, 10, "a y"), partial(2, 20, "a2 y"), settled(2, 20), view(3, 30, "a2 y"), settled(3, 32)],
        [(1, 10, MISSED), (11, 32, UNCERTAIN), (33, 40, MISSED)],
    ),
    "and has not listened for long since": Case(
        [view(1, 10, "a y"), partial(2, 20, "a2 y"), settled(2, 20)], ALL
    ),
    "another one of before is not met": Case(
        [view(1, 10, "a b y"), view(2, 20, "a2 y"), settled(2, 32)],
        [(1, 32, UNCERTAIN), (33, 40, MISSED)],
    ),
    "another one was there all the time": Case(
        [view(1, 10, "a b y"), view(2, 20, "b y"), view(3, 30, "b a2 y"), settled(3, 32)], NONE_OF_IT
    ),
    "also if they did not hear each other at once": Case(
        [
            *(view(1, 10, "a b y"), view(2, 20, "b y", 1), partial(2.5, 20, "a2", 1)),
            *(view(3, 30, "b a2 y", 2, 2.5), settled(3, 32)),
        ],
        NONE_OF_IT,
    ),
    "one of three is dead": Case(
        [view(1, 10, "a b c y"), view(2, 20, "a b y"), settled(2, 22)], NONE_OF_IT
    ),
    "one of three was left out": Case(
        [view(1, 10, "a b c y"), partial(2, 20, "a b y"), settled(2, 20), view(3, 30, "a b y"), settled(3, 32)],
        [(1, 10, MISSED), (11, 32, UNCERTAIN), (33, 40, MISSED)],
    ),
    "one of three was left out, and is back": Case(
        [view(1, 10, "a b c y"), partial(2, 20, "a b y"), view(3, 30, "a b c y"), settled(3, 32)],
        NONE_OF_IT,
    ),
    "one of three was left out, and silent": Case(
        [view(1, 10, "a b c y"), partial(2, 20, "a b y"), settled(2, 20)], ALL
    ),
    "views before are unknown, and nothing is settled": Case([view(5, 9, "a y")], ALL),
    "views before are unknown": Case([view(5, 9, "a y"), settled(5, 12)], UP_TO_12),
    "views of some of its members are unknown": Case(
        [view(1, 0, "a y"), view(5, 9, "a y", 1, 4), settled(5, 12)], UP_TO_12
    ),
    "there was no archive before": Case([partial(1, 0, "a y"), settled(1, 0)], NONE_OF_IT),
}  # fmt: skip


@pytest.mark.parametrize("case", HOLES.values(), ids=HOLES)
def test_incarnations_that_no_archive_saw(case: Case) -> None:
    """IH3. Of x nothing at all is known."""
    assert said(*case.records) == case.expected


def test_the_present_life_does_not_count() -> None:
    records: list[ArchiveRecord] = [
        *(view(1, 0, "a x"), view(2, 10, "a"), settled(2, 10), view(3, 20, "a x2")),
        ack("x", 1, 0, 4),
    ]
    expected = [(1, 4, DELIVERED), (5, 10, UNCERTAIN), (11, 40, MISSED)]
    assert said(*records, without="x2") == expected
    assert DeliveryRecords(records).has_seen(member("x2"))
    assert not DeliveryRecords(records).has_seen(member("x3"))


def test_when_the_name_is_back_its_earlier_life_is_over() -> None:
    """Whether the view is complete or not; but an earlier incarnation says nothing of a later one."""
    records: list[ArchiveRecord] = [view(1, 0, "a x"), partial(2, 10, "a x2"), settled(2, 12)]
    assert said(*records, without="x2") == UP_TO_12
    assert DeliveryRecords(records).delivery_status("x").delivery_bound() is None


def test_what_the_bound_is_not_known_of() -> None:
    table = DeliveryRecords([view(1, 0, "a x"), view(2, 10, "a x2")])
    assert table.delivery_status("x", member("x2")).delivery_bound() is None
    table.add(settled(2, UNBOUNDED))
    assert table.delivery_status("x", member("x2")).delivery_bound() == Vector({P: UNBOUNDED})
    assert table.delivery_status("x", member("x2")).split(P, 1, 40) == ALL


def test_a_view_that_came_to_be_replaces_the_question_about_it() -> None:
    asked = ViewRecord(view(2, 0, "a x").view, Vector(), (), provisional=True)
    table = DeliveryRecords([asked])
    assert table.has_seen(member("x"))
    assert table.add(view(2, 5, "a y"))
    assert not table.add(asked)
    assert not table.has_seen(member("x"))


def test_the_farther_end_is_the_safer_and_any_is_better_than_none() -> None:
    table = DeliveryRecords([view(1, 0, "x"), settled(1, UNBOUNDED)])
    for reach, is_news, end in ((5, True, 5), (9, True, 9), (7, False, 9), (UNBOUNDED, False, 9)):
        assert table.add(settled(1, reach)) == is_news
        assert table.stability[id_of(1)].delivery_bound == {P: end}


def test_who_has_left_has_left() -> None:
    table = DeliveryRecords([ack("x", 1, 0, 5)])
    assert table.add(ack("x", 1, 0, 5, final=True))
    assert not table.add(ack("x", 1, 0, 5))
    assert table.acknowledgements[member("x")].is_final


def test_what_was_passed_over_is_not_delivered() -> None:
    incarnation, view = MemberId("x", bytes(16)), ViewId(1, bytes(16))
    first = AcknowledgementRecord(
        incarnation, view, Vector(), Vector({P: 30}, {P: [(11, 20)]}), is_final=True
    )
    table = DeliveryRecords([first])
    split = table.delivery_status("x").split(P, 1, 40)
    assert [(low, high) for low, high, each in split if each is Certainty.DELIVERED] == [
        (1, 10),
        (21, 30),
    ]
    assert table.last_acknowledged("x") == first.vector, "and is asked for again"


def test_what_came_out_of_a_hole_is_delivered_or_in_doubt() -> None:
    incarnation, view = MemberId("x", bytes(16)), ViewId(1, bytes(16))
    start = Vector({P: 30}, {P: [(11, 20)]})
    filled = AcknowledgementRecord(
        incarnation, view, start, Vector({P: 40}, {P: [(16, 17), (35, 35)]}), is_final=True
    )
    split = DeliveryRecords([filled]).delivery_status("x").split(P, 1, 40)
    delivered = [(low, high) for low, high, each in split if each is Certainty.DELIVERED]
    assert delivered == [(11, 15), (18, 20), (31, 34), (36, 40)]
    open_ = msgspec.structs.replace(filled, is_final=False)
    doubt = dict.fromkeys(
        sequence
        for low, high, each in DeliveryRecords([open_]).delivery_status("x").split(P, 11, 60)
        if each is Certainty.UNCERTAIN
        for sequence in range(low, high + 1)
    )
    assert list(doubt) == [16, 17, *range(41, 61)], "35 was passed over in this incarnation"


def test_an_acknowledgement_with_a_smaller_hole_is_the_newer() -> None:
    incarnation, view = MemberId("x", bytes(16)), ViewId(1, bytes(16))
    vectors = [
        Vector({P: 10}),
        Vector({P: 30}, {P: [(11, 20)]}),
        Vector({P: 30}, {P: [(16, 20)]}),
        Vector({P: 30}),
    ]
    acks = [AcknowledgementRecord(incarnation, view, Vector(), vector) for vector in vectors]
    assert sorted(acks, key=acknowledgement_weight) == acks
    assert len({acknowledgement_weight(ack) for ack in acks}) == 4
