"""Which frames were settled, against a model that is a set."""

from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.inbound.deduplication import (
    MAX_PENDING_COUNT,
    Deduplicator,
    FrameStatus,
    SenderHistory,
)

ONE, OTHER = bytes(16), bytes([1]) * 16

commands = st.lists(
    st.tuples(st.sampled_from(["begin", "settle", "forget", "once"]), st.integers(1, 12)),
    max_size=80,
)


@given(commands)
def test_a_settled_one_is_refused_and_an_unsettled_one_is_not(
    said: list[tuple[str, int]],
) -> None:
    replay = Deduplicator()
    pending, settled = set[int](), set[int]()
    for word, number in said:
        match word:
            case "begin":
                expected = (
                    FrameStatus.SETTLED
                    if number in settled
                    else FrameStatus.PENDING
                    if number in pending
                    else FrameStatus.NEW
                )
                assert replay.history_of(ONE).status_of(number) is expected
                if expected is FrameStatus.NEW:
                    replay.mark_pending(ONE, number)
                    pending.add(number)
            case "once":
                new = number not in settled | pending
                assert replay.accept_once(ONE, number) is new
                if new:
                    settled.add(number)
            case "settle" if number not in settled:  # also one that was never pending
                replay.history_of(ONE).settle(number)
                pending.discard(number)
                settled.add(number)
            case "forget" if number in pending:
                replay.release(ONE, number)
                pending.discard(number)


def test_incarnations_do_not_know_of_each_other() -> None:
    replay = Deduplicator()
    assert replay.accept_once(ONE, 1)
    assert replay.accept_once(OTHER, 1)
    assert not replay.accept_once(OTHER, 1)


def test_the_longest_silent_incarnation_is_forgotten() -> None:
    replay = Deduplicator(max_incarnations=2)
    replay.accept_once(ONE, 1)
    replay.accept_once(OTHER, 1)
    replay.accept_once(ONE, 2)
    replay.accept_once(bytes([2]) * 16, 1)
    assert len(replay) == 2
    assert not replay.accept_once(ONE, 1)
    assert replay.accept_once(OTHER, 1)


def test_what_is_being_processed_is_bounded() -> None:
    replay = Deduplicator()
    for number in range(1, MAX_PENDING_COUNT + 1):
        assert replay.history_of(ONE).status_of(number) is FrameStatus.NEW
        replay.mark_pending(ONE, number)
    assert replay.history_of(ONE).status_of(MAX_PENDING_COUNT + 1) is FrameStatus.PENDING
    replay.history_of(ONE).settle(5)
    assert replay.history_of(ONE).status_of(MAX_PENDING_COUNT + 1) is FrameStatus.NEW


def with_gaps() -> tuple[Deduplicator, SenderHistory]:
    """Every second number up to 20 is settled, the others are being processed; three gaps are the maximum."""
    replay = Deduplicator(ranges_max=3)
    sequences = replay.history_of(ONE)
    for number in range(1, 20, 2):
        replay.mark_pending(ONE, number)
        sequences.settle(number + 1)
    return replay, sequences


def test_what_is_being_processed_is_not_settled_however_many_gaps_there_are() -> None:
    _, sequences = with_gaps()
    assert sequences.range_count <= 3
    assert {sequences.status_of(number) for number in range(1, 20, 2)} == {FrameStatus.PENDING}
    sequences.settle(1)
    assert sequences.status_of(1) is FrameStatus.SETTLED


def test_what_was_let_go_is_new_however_many_gaps_there_are() -> None:
    replay, sequences = with_gaps()
    for number in range(1, 20, 2):
        replay.release(ONE, number)
        assert sequences.status_of(number) is FrameStatus.NEW
        replay.mark_pending(ONE, number)
        sequences.settle(number)
    assert {sequences.status_of(number) for number in range(1, 21)} == {FrameStatus.SETTLED}
    assert not sequences.excluded


def test_to_forget_what_nobody_knows_is_nothing() -> None:
    replay = Deduplicator()
    replay.release(ONE, 1)
    assert len(replay) == 0
