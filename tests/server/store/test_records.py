"""Records are read as they were written."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.traits import MessageTraits
from recado.amqp.values import FieldTable, Int8, LongString, ScaledDecimal, Timestamp
from recado.broker.run import Origin
from recado.server.store import records

positions = st.integers(0, (1 << 63) - 1)
destinations = st.tuples(
    st.integers(1, (1 << 32) - 1),
    positions,
    st.just(records.NO_EXPIRY_CODE) | st.integers(0, 1 << 50),
)
ranges = st.lists(st.tuples(positions, positions), max_size=4)


@given(
    st.lists(destinations, min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 255),
    st.tuples(st.text(max_size=20), st.text(max_size=20)),
    st.binary(max_size=30),
    st.lists(st.binary(max_size=20), min_size=1, max_size=5),
    st.sampled_from((records.RUN, records.MOVED_RUN)),
)
def test_runs(
    destinations: list[records.Destination],
    persistent: bool,
    priority: int,
    names: tuple[str, str],
    prefix: bytes,
    payloads: list[bytes],
    kind: int,
) -> None:
    if prefix:  # then all have the same size
        payloads = [payload.ljust(20) for payload in payloads]
    origin = Origin(*names)
    traits = MessageTraits(persistent=persistent, priority=priority)
    record = records.encode_run(
        destinations, traits, origin.first_delivery_end[1:-1], 7, 4096, prefix, payloads, kind=kind
    )
    run = records.decode_run(record)
    assert record[0] == kind
    assert records.decode_destinations(record) == destinations
    assert run.traits == traits
    assert (run.channel, run.frame_max, run.prefix, run.payloads) == (7, 4096, prefix, payloads)
    found = records.decode_origin(run.origin_bytes)
    assert (found.exchange, found.routing_key) == names
    for each in destinations:
        assert records.find_destination(record, each[0] & ~records.SPILLED_FLAG)[
            0
        ] & ~records.SPILLED_FLAG == (each[0] & ~records.SPILLED_FLAG)
    if len(payloads) == len(destinations) == 1:
        assert record[records.payload_offset(record) :] == payloads[0]
    else:
        assert records.payload_offset(record) == 0


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300, unique=True), st.randoms())
def test_one_of_many_destinations_is_found(queues: list[int], random: Random) -> None:
    """Queue ids may end in equal bytes, or look like parts of positions; some destinations are spilled."""
    destinations = [
        (
            queue | random.choice((0, records.SPILLED_FLAG)),
            random.choice(queues),
            random.choice(queues),
        )
        for queue in queues
    ]
    record = records.encode_run(destinations, MessageTraits(), b"", 1, 4096, b"", [b"message"])
    for queue, destination in zip(queues, destinations, strict=True):
        assert records.find_destination(record, queue) == destination
    for queue in {*range(1, 1001, 7), 256, 512} - set(queues):
        assert records.find_destination(record, queue) in destinations


@given(st.lists(st.tuples(st.integers(1, 1 << 31), ranges), max_size=3))
def test_ranges(spans: list[tuple[int, records.Ranges]]) -> None:
    record = records.encode_ranges(records.SETTLED, spans)
    assert record[0] == records.SETTLED
    assert list(records.decode_ranges(record)) == spans


@given(st.integers(1, 1 << 31), positions, st.lists(ranges, max_size=3))
def test_indexes(queue: int, next_place: int, sets: list[records.Ranges]) -> None:
    record = records.encode_queue_index(queue, next_place, sets)
    assert records.decode_queue_index(record) == (queue, next_place, sets)


def test_tables_keep_the_types_of_their_values() -> None:
    arguments: FieldTable = {
        "x-max-length": Int8(5),
        "nested": {"list": [None, True, ScaledDecimal(2, 314), LongString(b"\xff")]},
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
def test_traits(value: bytes | None) -> None:
    record = records.encode_metadata("policy", "/", "p", value)
    assert record[0] == (records.METADATA_DELETED if value is None else records.METADATA)
    assert records.decode_metadata(record) == (("policy", "/", "p"), value or b"")


@given(st.lists(st.tuples(st.binary(max_size=255), st.integers(0, 1 << 50)), max_size=3))
def test_ids_that_were_seen(ids: list[tuple[bytes, int]]) -> None:
    record = records.encode_message_ids({"number": 3}, ids)
    assert records.decode_message_ids(record) == ({"number": 3}, ids)


@given(st.integers(1, 1 << 31), st.lists(st.binary(max_size=9), max_size=4))
def test_checkpoints(next_queue: int, parts: list[bytes]) -> None:
    number, found = records.decode_checkpoint(records.encode_checkpoint(next_queue, parts))
    assert (number, list(found)) == (next_queue, parts)
