"""Records are read as they were written."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.facts import Facts
from recado.amqp.values import Int8, LongString, Scaled, Table, Timestamp
from recado.broker.run import Origin
from recado.server.ledger import records

places = st.integers(0, (1 << 63) - 1)
destinations = st.tuples(
    st.integers(1, (1 << 32) - 1), places, st.just(records.NEVER) | st.integers(0, 1 << 50)
)
ranges = st.lists(st.tuples(places, places), max_size=4)


@given(
    st.lists(destinations, min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 255),
    st.tuples(st.text(max_size=20), st.text(max_size=20)),
    st.binary(max_size=30),
    st.lists(st.binary(max_size=20), min_size=1, max_size=5),
    st.sampled_from((records.RUN, records.MOVED)),
)
def test_runs(
    destinations: list[records.Destination],
    persistent: bool,
    priority: int,
    names: tuple[str, str],
    head: bytes,
    tails: list[bytes],
    kind: int,
) -> None:
    if head:  # then all have the same size
        tails = [tail.ljust(20) for tail in tails]
    origin = Origin(*names)
    facts = Facts(persistent=persistent, priority=priority)
    record = records.encode_run(
        destinations, facts, origin.first_time[1:-1], 7, 4096, head, tails, kind=kind
    )
    run = records.decode_run(record)
    assert record[0] == kind
    assert records.destinations_of(record) == destinations
    assert run.facts == facts
    assert (run.channel, run.frame_max, run.head, run.tails) == (7, 4096, head, tails)
    found = records.origin_of(run.names)
    assert (found.exchange, found.routing_key) == names
    for each in destinations:
        assert records.destination_in(record, each[0] & ~records.LOAN)[0] & ~records.LOAN == (
            each[0] & ~records.LOAN
        )
    if len(tails) == len(destinations) == 1:
        assert record[records.start_of_tail(record) :] == tails[0]
    else:
        assert records.start_of_tail(record) == 0


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300, unique=True), st.randoms())
def test_one_of_many_destinations_is_found(queues: list[int], random: Random) -> None:
    """Numbers may end alike, or look like parts of places; some are loans."""
    destinations = [
        (queue | random.choice((0, records.LOAN)), random.choice(queues), random.choice(queues))
        for queue in queues
    ]
    record = records.encode_run(destinations, Facts(), b"", 1, 4096, b"", [b"message"])
    for queue, destination in zip(queues, destinations, strict=True):
        assert records.destination_in(record, queue) == destination
    for queue in {*range(1, 1001, 7), 256, 512} - set(queues):
        assert records.destination_in(record, queue) in destinations


@given(st.lists(st.tuples(st.integers(1, 1 << 31), ranges), max_size=3))
def test_ranges(spans: list[tuple[int, records.Ranges]]) -> None:
    record = records.encode_ranges(records.SETTLED, spans)
    assert record[0] == records.SETTLED
    assert list(records.decode_ranges(record)) == spans


@given(st.integers(1, 1 << 31), places, st.lists(ranges, max_size=3))
def test_accounts(queue: int, next_place: int, sets: list[records.Ranges]) -> None:
    record = records.encode_account(queue, next_place, sets)
    assert records.decode_account(record) == (queue, next_place, sets)


def test_tables_keep_the_types_of_their_values() -> None:
    arguments: Table = {
        "x-max-length": Int8(5),
        "nested": {"list": [None, True, Scaled(2, 314), LongString(b"\xff")]},
        "when": Timestamp(3),
        "bytes": b"1",
    }
    record = records.encode_tables(records.QUEUE, {"name": "q"}, arguments)
    name, found = records.decode_tables(record)
    assert name == {"name": "q"}
    assert found == arguments
    assert isinstance(found["x-max-length"], Int8)
    assert isinstance(found["when"], Timestamp)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert records.decode_tables(records.encode_tables(1, {"at": at})) == [{"at": at.timestamp()}]


@pytest.mark.parametrize("value", [b"", b"some", None])
def test_facts(value: bytes | None) -> None:
    record = records.encode_fact("policy", "/", "p", value)
    assert record[0] == (records.FACT_GONE if value is None else records.FACT)
    assert records.decode_fact(record) == (("policy", "/", "p"), value or b"")


@given(st.lists(st.tuples(st.binary(max_size=255), st.integers(0, 1 << 50)), max_size=3))
def test_ids_that_were_seen(ids: list[tuple[bytes, int]]) -> None:
    record = records.encode_seen({"number": 3}, ids)
    assert records.decode_seen(record) == ({"number": 3}, ids)


@given(st.integers(1, 1 << 31), st.lists(st.binary(max_size=9), max_size=4))
def test_checkpoints(next_queue: int, parts: list[bytes]) -> None:
    number, found = records.decode_checkpoint(records.encode_checkpoint(next_queue, parts))
    assert (number, list(found)) == (next_queue, parts)
