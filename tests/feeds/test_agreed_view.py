"""A view as a difference from another: what comes out is what went in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.feeds.layers.agreed_view import AgreedView
from recado.feeds.packet import NewView, OutsiderReport, Prepared
from recado.feeds.views import NO_VIEW, MemberId, Role, View, ViewEntry, ViewId

PEOPLE = [MemberId(name, number.to_bytes(16)) for number, name in enumerate("abcdefgh")]
PUBLISHERS = [number.to_bytes(16) for number in range(100, 106)]

vectors = st.dictionaries(st.sampled_from(PUBLISHERS), st.integers(1, 9))
stays = st.dictionaries(st.sampled_from(PEOPLE), st.integers(1, 5), min_size=1)


def view_of(number: int, stay: dict[MemberId, int], cut: dict[bytes, int]) -> NewView:
    order = sorted(stay, key=lambda member: (stay[member], member))
    seats = tuple(ViewEntry(member, Role.SUBSCRIBER) for member in order)
    view = View(ViewId(number, bytes(16)), seats)
    return NewView(view, [stay[member] for member in order], cut, [NO_VIEW], is_complete=True)


@given(stays, stays, vectors, vectors)
def test_a_view_is_the_same_after_a_difference(
    before: dict[MemberId, int],
    after: dict[MemberId, int],
    old: dict[bytes, int],
    new: dict[bytes, int],
) -> None:
    """AG2."""
    agreed, wanted = AgreedView(view_of(1, before, old)), view_of(2, after, new)
    assert agreed.apply_delta(agreed.build_delta(wanted)) == wanted


@given(stays, st.sets(st.sampled_from(PEOPLE)))
def test_the_same_are_invited(stay: dict[MemberId, int], invited: set[MemberId]) -> None:
    agreed = AgreedView(view_of(1, stay, {}))
    prepare = agreed.build_prepare(ViewId(2, bytes(16)), sorted(invited))
    assert set(agreed.resolve_invited(prepare)) == invited


@given(vectors, st.lists(vectors, min_size=1))
def test_a_cut_is_the_largest_of_what_any_has(
    cut: dict[bytes, int], received: list[dict[bytes, int]]
) -> None:
    agreed = AgreedView(view_of(1, {PEOPLE[0]: 1}, cut))
    answers = [
        Prepared(
            ViewId(2, bytes(16)),
            Role.SUBSCRIBER,
            NO_VIEW,
            0,
            agreed.subtract_cut(each),
            OutsiderReport.NONE,
            agreed.id,
        )
        for each in received
    ]
    every = {p for each in received for p in each}
    expected = {p: max(each.get(p, 0) for each in received) for p in every}
    assert agreed.merge_received(answers) == expected


@pytest.mark.parametrize("seat", [8, 10_000])
def test_a_seat_that_there_is_not_is_nobodys(seat: int) -> None:
    agreed = AgreedView(view_of(1, dict.fromkeys(PEOPLE, 1), {}))
    prepare = agreed.build_prepare(ViewId(2, bytes(16)), PEOPLE)
    prepare.removed.append(seat)
    assert agreed.resolve_invited(prepare) == PEOPLE
