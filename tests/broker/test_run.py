"""Runs: taking, splitting and merging preserve every message and its position; shared lists are unchanged."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES, encode_content, extract_body
from recado.amqp.properties import Properties, decode_properties
from recado.broker.run import Origin, Run, merge_adjacent

from .stage import run_of

BODIES = [b"%04d" % i for i in range(3000)]


def some(count: int, *, alike: bool = False, first: int = 0) -> Run:
    run = run_of(BODIES[:count], alike=alike)
    run.first_position = first
    return run


def by_position(run: Run) -> list[tuple[int, bytes]]:
    """Return the messages by their positions."""
    bodies = map(extract_body, run.contents())
    return [(run.first_position + i * run.stride, body) for i, body in enumerate(bodies)]


def test_where_a_message_came_from_ends_its_delivery() -> None:
    origin = Origin("x", "clé")
    assert origin.first_delivery_end == b"\x00\x01x\x04cl\xc3\xa9\xce"
    assert origin.redelivery_end == b"\x01" + origin.first_delivery_end[1:]


@given(st.integers(1, 3000), st.lists(st.integers(1, 900)), st.booleans())
def test_what_is_taken_and_what_is_left_is_all(count: int, takes: list[int], alike: bool) -> None:
    run = some(count, alike=alike, first=5)
    whole = by_position(run)
    seen: list[tuple[int, bytes]] = []
    for take in takes:
        left = len(run)
        part = run.take(take)
        assert len(part) == min(take, left)
        assert part.taken_count == 0
        seen += by_position(part)
        if part is run:
            break
        assert len(run) == left - take
    else:
        seen += by_position(run)
    assert seen == whole


@given(st.integers(1, 40), st.integers(1, 7))
def test_a_run_is_dealt_like_cards(count: int, hands: int) -> None:
    run = some(count, first=3)
    parts = run.split_round_robin(hands)
    assert len(parts) == hands
    assert sorted(each for part in parts for each in by_position(part)) == by_position(run)
    for i, part in enumerate(parts):
        assert by_position(part) == by_position(run)[i::hands]
        assert by_position(part.slice(1, 3)) == by_position(part)[1:3]


def test_a_run_for_another_queue_shares_its_messages_and_is_left_alone() -> None:
    run = some(5)
    run.redelivered, run.expires_at = True, 7
    twin = run.copy_for_queue()
    assert (twin.owns_payloads, twin.redelivered, twin.expires_at, twin.first_position) == (
        False,
        False,
        None,
        0,
    )
    twin.take(2)
    twin.take(3)
    assert [body for _, body in by_position(run)] == BODIES[:5]


def test_taking_again_and_again_lets_go_of_what_has_left() -> None:
    shared = some(3000)
    run = shared.copy_for_queue()
    run.take(1000)
    assert len(run.payloads) == 3000
    run.take(24)
    assert (len(run.payloads), run.owns_payloads) == (1976, True)
    assert len(shared.payloads) == 3000


def test_what_follows_can_be_appended() -> None:
    last, run = some(3, first=4), some(2, first=7)
    assert run.can_follow(last)
    last.take(1)
    assert run.can_follow(last)


@pytest.mark.parametrize(
    ("of_last", "of_run"),
    [
        ({"origin": Origin("", "other")}, {}),
        ({"traits": run_of([b""], Properties(priority=1)).traits}, {}),
        ({}, {"channel": 2}),
        ({"frame_max": 4096}, {}),
        ({"expires_at": 1}, {"expires_at": 2}),
        ({"owns_payloads": False}, {}),
        ({"payloads": [b""] * 4096}, {"first_position": 4100}),
        ({}, {"first_position": 8}),
        ({}, {"prefix": b"prefix"}),
    ],
)
def test_what_is_not_alike_does_not_follow(
    of_last: dict[str, object], of_run: dict[str, object]
) -> None:
    last = msgspec.structs.replace(some(3, first=4), **of_last)
    run = msgspec.structs.replace(some(2, first=7), **of_run)
    assert not run.can_follow(last)


@pytest.mark.parametrize("alike", [False, True])
def test_sizes_and_contents_are_of_what_is_left(alike: bool) -> None:
    run = some(5, alike=alike)
    run.take(2)
    assert run.body_sizes() == [4, 4, 4]
    assert [extract_body(content) for content in run.contents()] == BODIES[2:5]


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(("channel", "frame_max"), [(9, FRAME_MAX_DEFAULT_BYTES), (9, 10), (1, 10)])
def test_a_run_is_fitted_to_its_receiver(alike: bool, channel: int, frame_max: int) -> None:
    prefix, payloads = some(3, alike=alike).fit_frames(channel, frame_max)
    expected = [encode_content(channel, b"\x00\x00", body, frame_max) for body in BODIES[:3]]
    assert [prefix + payload for payload in payloads] == expected


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 1), *[st.booleans()] * 3), max_size=12),
    st.randoms(),
)
def test_runs_that_return_are_joined(
    parts: list[tuple[int, int, bool, bool, bool]], random: Random
) -> None:
    """In order of position, every message once, and shared lists are unchanged."""
    position, runs, shared = 0, [], []
    for count, gap, alike, owned, step in parts:
        run = some(count, alike=alike, first=position)
        if not owned:
            shared.append((run, count))
            run = run.copy_for_queue()
            run.first_position = position
        if step and count == 1:
            run.stride = 2
        runs.append(run)
        position += count + gap
    whole = [message for run in runs for message in by_position(run)]
    random.shuffle(runs)
    found = merge_adjacent(runs)
    assert [message for run in found for message in by_position(run)] == whole
    assert len(found) <= len(runs)
    assert all(len(run.payloads) == count for run, count in shared)


def test_singles_that_return_are_few_runs() -> None:
    whole = some(3000, alike=True)
    whole.stride = 2
    singles = [whole.slice(i, i + 1) for i in range(3000)]
    for position, run in enumerate(singles):
        run.first_position = position
    (run,) = merge_adjacent(reversed(singles))
    assert by_position(run) == list(enumerate(BODIES))


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("frame_max", [FRAME_MAX_DEFAULT_BYTES, 4096])
def test_the_start_of_one_message(alike: bool, frame_max: int) -> None:
    properties = Properties(message_id="m")
    size = 3000 if alike else 9000  # messages of a run with a prefix have one body frame
    bodies = [bytes([letter]) * size for letter in b"abc"]
    run = run_of(bodies, properties, alike=alike, frame_max=frame_max)
    run.take(1)
    for body_max in (0, 5, 5000, 10_000):
        encoded, body, body_bytes = run.read_start(1, body_max)
        assert decode_properties(encoded) == properties
        assert (body, body_bytes) == (bodies[2][:body_max], size)
