"""The latest status records: their limits, their age, and hostile ones. Time is an argument."""

from __future__ import annotations

import json
import logging

import pytest

from recado.console.status_table import (
    AGE_MAX_MS,
    RECORDS_MAX_BYTES,
    RECORDS_MAX_COUNT,
    StatusRecords,
    StatusTable,
)
from recado.status.record import (
    ACTORS_MAX_COUNT,
    NAME_MAX_BYTES,
    RECORD_MAX_BYTES,
    ActorsStatus,
    ActorStatus,
    MalformedStatusError,
    check_source_name,
    clip,
    decode_record,
    encode_record,
    routing_key,
)

from .status_records import actors_status, encode, pipeline_status

NOW = 1_700_000_000_000


def receive(records: StatusRecords, name: str, vhost: str = "/", now: int = NOW) -> None:
    records.receive(vhost, f"actors.{name}", encode(actors_status(name)), now)


def names(table: StatusTable, *vhosts: str) -> list[str]:
    return [each.name for each in table.read(vhosts or ("/",))]


def test_a_record_is_stale_after_three_intervals_and_dropped_after_a_day() -> None:
    records = StatusRecords()
    receive(records, "exchange")
    stored = records.actors.find("exchange", ["/"])
    assert stored is not None
    assert not stored.is_stale(NOW + 15_000)
    assert stored.is_stale(NOW + 15_001)
    assert stored.describe(NOW + 15_001)["stale"]
    records.expire(NOW + AGE_MAX_MS, ["/"])
    assert names(records.actors) == ["exchange"]
    records.expire(NOW + AGE_MAX_MS + 1, ["/"])
    assert names(records.actors) == []
    assert records.actors.stored_bytes == 0


@pytest.mark.parametrize(
    "record",
    [actors_status(state="closed"), *(pipeline_status(state=s) for s in ("finished", "failed"))],
)
def test_a_source_that_has_ended_is_never_stale(record: object) -> None:
    records = StatusRecords()
    records.receive("/", routing_key(record), encode(record), NOW)  # type: ignore[arg-type]
    table = records.actors if len(records.actors) else records.pipelines
    (stored,) = table.read(["/"])
    assert not stored.is_stale(NOW + AGE_MAX_MS)


def test_the_latest_record_of_a_source_counts() -> None:
    records = StatusRecords()
    for handled in (1, 2):
        record = actors_status(handled=handled)
        records.receive("/", "actors.exchange", encode(record), NOW + handled)
    (stored,) = records.actors.read(["/"])
    assert stored.describe(NOW)["handled"] == 2
    assert stored.received_ms == NOW + 2


def test_kinds_and_vhosts_are_separate() -> None:
    records = StatusRecords()
    receive(records, "one", "a")
    receive(records, "one", "b", NOW + 1)
    records.receive("a", "pipeline.one", encode(pipeline_status("one")), NOW)
    assert len(records.actors) == 2
    assert len(records.pipelines) == 1
    found = records.actors.find("one", ["a", "b"])
    assert found is not None
    assert found.vhost == "b"
    assert records.actors.find("one", ["c"]) is None
    records.expire(NOW, ["a"])
    assert names(records.actors, "a", "b") == ["one"]


def test_ten_thousand_hostile_sources_are_bounded_and_evict_only_their_own_vhost() -> None:
    records = StatusRecords()
    receive(records, "honest", "/", NOW)
    for number in range(10_000):
        receive(records, f"hostile-{number}", "evil", NOW + number)
    assert len(records.actors) == RECORDS_MAX_COUNT
    assert names(records.actors, "/") == ["honest"]
    assert names(records.actors, "evil")[-1] == "hostile-9999"


def test_large_records_are_bounded_by_their_size() -> None:
    records = StatusRecords()
    actor = ActorStatus(1, "n" * 200, "t" * 200, "started", 0, 0, 0, None, 0)
    for number in range(400):
        record = actors_status(f"large-{number}", actors=(actor,) * ACTORS_MAX_COUNT)
        body = encode_record(record)
        assert len(body) <= RECORD_MAX_BYTES
        records.receive("/", f"actors.large-{number}", body, NOW)
    assert records.actors.stored_bytes <= RECORDS_MAX_BYTES
    assert 100 < len(records.actors) < 400


def test_a_record_that_is_too_large_is_sent_with_fewer_actors() -> None:
    actor = ActorStatus(1, "n" * 255, "t" * 255, "started", 0, 0, 0, None, 0)
    record = actors_status(actors=(actor,) * ACTORS_MAX_COUNT, omitted=3)
    decoded = decode_record("actors.exchange", encode_record(record))
    assert isinstance(decoded, ActorsStatus)
    assert len(decoded.actors) == ACTORS_MAX_COUNT // 2
    assert decoded.omitted == 3 + ACTORS_MAX_COUNT // 2


GOOD = json.loads(encode(actors_status()))
HOSTILE = {
    "empty": b"",
    "no JSON": b"\xff\xfe",
    "a list": b"[]",
    "no kind": json.dumps({**GOOD, "kind": None}).encode(),
    "another kind": json.dumps({**GOOD, "kind": "broker"}).encode(),
    "no name": json.dumps({**GOOD, "name": ""}).encode(),
    "another name": json.dumps({**GOOD, "name": "other"}).encode(),
    "a long name": json.dumps({**GOOD, "name": "x" * 256}).encode(),
    "a surrogate": json.dumps({**GOOD, "name": "\ud800"}).encode(),
    "a negative count": json.dumps({**GOOD, "waiting": -1}).encode(),
    "a huge count": json.dumps({**GOOD, "waiting": 2**63}).encode(),
    "a huge number": b'{"kind":"actors","waiting":' + b"9" * 10_000 + b"}",
    "interval 0": json.dumps({**GOOD, "interval": 0}).encode(),
    "a long interval": json.dumps({**GOOD, "interval": 1e9}).encode(),
    "NaN": encode(actors_status()).replace(b"5.0", b"NaN"),
    "an unknown state": json.dumps({**GOOD, "state": "x"}).encode(),
    "many peers": json.dumps(
        {**GOOD, "peers": [{"node": "n", "unreachable": False}] * 501}
    ).encode(),
    "deep": b'{"kind":"actors","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep before the kind": b'{"x":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}",
    "too large": encode(actors_status()) + b" " * RECORD_MAX_BYTES,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_malformed_records_are_counted_and_logged_once(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    records = StatusRecords()
    with caplog.at_level(logging.WARNING, "recado.console"):
        for _ in range(3):
            records.receive("/", "actors.exchange", body, NOW)
    assert records.malformed_count == 3
    assert len(records.actors) == 0
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "malformed status record dropped"
    ]
    assert len(caplog.text) < 1_000


def test_unknown_fields_are_not_kept() -> None:
    body = json.dumps({**GOOD, "secret": ["x"] * 1_000}).encode()
    records = StatusRecords()
    records.receive("/", "actors.exchange", body, NOW)
    (stored,) = records.actors.read(["/"])
    assert "secret" not in stored.describe(NOW, is_complete=True)


def test_the_routing_key_has_to_name_the_source() -> None:
    body = encode(actors_status("exchange"))
    assert decode_record("actors.exchange", body) == actors_status("exchange")
    for key in ("actors.other", "pipeline.exchange", "exchange", ""):
        with pytest.raises(MalformedStatusError, match="routing key"):
            decode_record(key, body)


def test_names_and_texts_have_limits() -> None:
    assert check_source_name("x" * NAME_MAX_BYTES)
    for name in ("", "x" * (NAME_MAX_BYTES + 1), "é" * (NAME_MAX_BYTES // 2 + 1)):
        with pytest.raises(ValueError, match="status: the name"):
            check_source_name(name)
    assert clip("x" * 300) == "x" * 254 + "…"
    assert clip("a\ud800") == "a?"
