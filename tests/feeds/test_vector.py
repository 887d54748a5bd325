"""Vectors with holes: what was passed over was not had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.feeds.packet import Acknowledgement
from recado.feeds.vector import MAX_HOLES, DeliveryProgress, Vector
from recado.feeds.views import NO_VIEW
from recado.feeds.wire import decode, encode

P, Q = bytes([1]) * 16, bytes([2]) * 16


def test_a_hole_was_not_had() -> None:
    vector = Vector({P: 20, Q: 5}, {P: [(11, 12), (4, 4)]})
    assert [s for s in range(1, 22) if not vector.contains(P, s)] == [4, 11, 12, 21]
    assert vector.holes == {P: ((4, 4), (11, 12))}
    assert vector.covers({P: 3, Q: 5})
    assert not vector.covers({P: 4})
    assert vector != {P: 20, Q: 5}
    assert vector == Vector({Q: 5, P: 20}, {P: [(4, 4), (11, 11), (12, 12)]})
    assert len({vector, Vector({P: 20, Q: 5}), Vector(dict(vector), vector.holes)}) == 2
    assert "holes" in repr(vector)


def test_a_hole_at_the_end_is_none() -> None:
    assert Vector({P: 20}, {P: [(11, 25)]}) == {P: 10}
    assert Vector({P: 20}, {P: [(1, 20)]}) == {}
    assert Vector({P: 20}, {P: [(21, 30)]}) == {P: 20}


def test_the_text_has_holes() -> None:
    vector = Vector({P: 20, Q: 5}, {P: [(4, 4), (11, 12)]})
    assert vector.to_text() == f"{P.hex()}:20/4-4/11-12,{Q.hex()}:5"
    assert Vector.from_text(vector.to_text()) == vector
    for wrong in ("20/4", "20/4-", "20/5-4", "20/0-3", "20/4-4/", "/4-4"):
        with pytest.raises(ValueError, match="invalid entry"):
            Vector.from_text(f"{P.hex()}:{wrong}")


def test_holes_are_acknowledged() -> None:
    ack = Acknowledgement(
        NO_VIEW, Vector({Q: 1}), Vector({P: 20, Q: 5}, {P: [(4, 4), (11, 12)]}), False
    )
    assert decode(encode(ack)) == ack


def test_with_too_many_holes_less_is_said_to_be_had() -> None:
    vector = Vector({P: 20, Q: 5}, {P: [(4, 4), (11, 12)], Q: [(2, 3)]})
    assert vector.limit_holes(3) == vector
    assert vector.limit_holes(2) == Vector({P: 20, Q: 1}, {P: [(4, 4), (11, 12)]})
    assert vector.limit_holes(1) == Vector({P: 3, Q: 5}, {Q: [(2, 3)]})


def test_progress_is_bounded_and_forgets_no_hole() -> None:
    progress = DeliveryProgress(Vector())
    for start in range(1, 10 * MAX_HOLES, 4):
        progress.skip(P, start, start)
        progress.deliver(P, start + 1, start + 3)
    vector = progress.snapshot()
    assert len(vector.holes[P]) == MAX_HOLES
    assert not any(vector.contains(P, start) for start in range(1, 10 * MAX_HOLES, 4))


spans = st.tuples(st.integers(1, 40), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(st.tuples(st.sampled_from(["deliver", "skip", "withdraw"]), spans), max_size=12))
def test_progress_is_as_a_set(steps: list[tuple[str, tuple[int, int]]]) -> None:
    progress, had, end = DeliveryProgress(Vector()), set[int](), 0
    for what, (low, high) in steps:
        match what:
            case "deliver":  # behind all others, or what is known already
                low = min(low, end + 1)
                progress.deliver(P, low, high)
                had |= set(range(low, high + 1))
            case "skip":
                progress.skip(P, end + 1, high)
            case _ if high <= end:
                progress.withdraw(P, low, high)
                had -= set(range(low, high + 1))
        end = max(end, high if what != "withdraw" else 0)
    vector = progress.snapshot()
    assert {s for s in range(1, 60) if vector.contains(P, s)} == had
    assert Vector.from_text(vector.to_text()) == vector
