"""Which frames were settled, against a model that is a set."""

from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.receiving.replay import PENDING, Replay, Sequences, Standing

ONE, OTHER = bytes(16), bytes([1]) * 16

commands = st.lists(
    st.tuples(st.sampled_from(["begin", "settle", "forget", "once"]), st.integers(1, 12)),
    max_size=80,
)


@given(commands)
def test_a_settled_one_is_refused_and_an_unsettled_one_is_not(
    said: list[tuple[str, int]],
) -> None:
    replay = Replay()
    pending, settled = set[int](), set[int]()
    for word, number in said:
        match word:
            case "begin":
                expected = (
                    Standing.SETTLED
                    if number in settled
                    else Standing.PENDING
                    if number in pending
                    else Standing.NEW
                )
                assert replay.of(ONE).look(number) is expected
                if expected is Standing.NEW:
                    replay.pend(ONE, number)
                    pending.add(number)
            case "once":
                new = number not in settled | pending
                assert replay.once(ONE, number) is new
                if new:
                    settled.add(number)
            case "settle" if number not in settled:  # also what was never pending
                replay.of(ONE).settle(number)
                pending.discard(number)
                settled.add(number)
            case "forget" if number in pending:
                replay.forget(ONE, number)
                pending.discard(number)


def test_incarnations_do_not_know_of_each_other() -> None:
    replay = Replay()
    assert replay.once(ONE, 1)
    assert replay.once(OTHER, 1)
    assert not replay.once(OTHER, 1)


def test_the_longest_silent_incarnation_is_forgotten() -> None:
    replay = Replay(incarnations=2)
    replay.once(ONE, 1)
    replay.once(OTHER, 1)
    replay.once(ONE, 2)
    replay.once(bytes([2]) * 16, 1)
    assert len(replay) == 2
    assert not replay.once(ONE, 1)
    assert replay.once(OTHER, 1)


def test_what_is_being_processed_is_bounded() -> None:
    replay = Replay()
    for number in range(1, PENDING + 1):
        assert replay.of(ONE).look(number) is Standing.NEW
        replay.pend(ONE, number)
    assert replay.of(ONE).look(PENDING + 1) is Standing.PENDING
    replay.of(ONE).settle(5)
    assert replay.of(ONE).look(PENDING + 1) is Standing.NEW


def with_gaps() -> tuple[Replay, Sequences]:
    """Every second number up to 20 is settled, the others are being processed; three gaps are the most."""
    replay = Replay(gaps=3)
    sequences = replay.of(ONE)
    for number in range(1, 20, 2):
        replay.pend(ONE, number)
        sequences.settle(number + 1)
    return replay, sequences


def test_what_is_being_processed_is_not_settled_however_many_gaps_there_are() -> None:
    _, sequences = with_gaps()
    assert sequences.ranges <= 3
    assert {sequences.look(number) for number in range(1, 20, 2)} == {Standing.PENDING}
    sequences.settle(1)
    assert sequences.look(1) is Standing.SETTLED


def test_what_was_let_go_is_new_however_many_gaps_there_are() -> None:
    replay, sequences = with_gaps()
    for number in range(1, 20, 2):
        replay.forget(ONE, number)
        assert sequences.look(number) is Standing.NEW
        replay.pend(ONE, number)
        sequences.settle(number)
    assert {sequences.look(number) for number in range(1, 21)} == {Standing.SETTLED}
    assert not sequences.held


def test_to_forget_what_nobody_knows_is_nothing() -> None:
    replay = Replay()
    replay.forget(ONE, 1)
    assert len(replay) == 0
