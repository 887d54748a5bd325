"""The log of events and the readers in it, without a node: numbers, limits, positions and skipped events."""

from __future__ import annotations

import pytest

from recado.broker.access import User
from recado.broker.broker import Broker
from recado.broker.observer import Change
from recado.broker.scopes import make_token_user
from recado.console.events import log as event_log
from recado.console.events.log import EventKey, EventLog, render
from recado.console.events.reader import EventFilter, EventReader, StreamRequest
from recado.console.events.types import CHANGE_TYPES

SEEN = EventKey(CHANGE_TYPES["queue", Change.CREATED], "v")
UNSEEN = EventKey(CHANGE_TYPES["queue", Change.CREATED], "other")
ANA = User("ana", tags=("management",), permissions={"v": None})  # type: ignore[dict-item]


def reader(log: EventLog, last_event_id: str = "") -> EventReader:
    return EventReader("r", StreamRequest(ANA, EventFilter(), (), last_event_id), log)


def collect_all(one: EventReader) -> bytes:
    found = b""
    while one.has_backlog:
        found += one.collect(0)
    return found


def test_ids_are_consecutive_and_name_the_next_position() -> None:
    log = EventLog("e")
    start = log.end
    for number in range(3):
        log.append(SEEN, render(SEEN.type, b"%d" % number))
    assert [log.payload_at(start + number)[:7] for number in range(3)] == [
        b"id: e-%d" % (start + number + 1) for number in range(3)
    ]
    one = reader(log, "e-2")
    assert collect_all(one).count(b"event: ") == 2
    assert one.event_id == b"e-4"
    log.check()


def test_the_log_is_bounded_by_count_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "PAYLOADS_MAX_COUNT", 10)
    monkeypatch.setattr(event_log, "PAYLOADS_MAX_BYTES", 500)
    log = EventLog("e")
    for _ in range(25):
        log.append(SEEN, b"x")
        log.check()
    assert log.end - log.first == 10
    log.append(SEEN, b"x" * 450)
    log.check()
    assert 1 < log.end - log.first < 10
    log.append(SEEN, b"x" * 1_000)  # larger than all the log may keep
    log.check()
    assert log.size == 0


def test_a_reader_counts_what_it_missed_and_would_have_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "PAYLOADS_MAX_COUNT", 4)
    log = EventLog("e")
    one = reader(log)
    for number in range(3_000):
        log.append(UNSEEN if number % 3 else SEEN, b"event: x\ndata: 1\n\n")
    found = collect_all(one)
    assert b'event: stream.skipped\ndata: {"at":0,"count":999}' in found
    assert found.count(b"event: x") == 1
    assert collect_all(one) == b""


def test_nothing_is_said_about_missed_events_that_are_invisible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "PAYLOADS_MAX_COUNT", 4)
    log = EventLog("e")
    one = reader(log)
    for _ in range(100):
        log.append(UNSEEN, b"secret")
    assert collect_all(one) == b""
    assert one.event_id == log.id_at(log.end)


def test_a_cleared_log_has_no_old_positions() -> None:
    log = EventLog("e")
    log.append(SEEN, b"x")
    last = log.id_at(log.end).decode()
    assert not reader(log, last).has_backlog
    log.clear()
    assert b'"reason":"too_old"' in collect_all(reader(log, last))


def test_a_step_is_bounded() -> None:
    log = EventLog("e")
    one = reader(log)
    for _ in range(5_000):
        log.append(UNSEEN, b"x")
    for _ in range(4):
        assert one.collect(0) == b""
        assert one.has_backlog
    one.collect(0)
    assert not one.has_backlog
    for _ in range(10):
        log.append(SEEN, b"x" * 10_000)
    assert len(one.collect(0)) < 30_000


def test_a_stream_ends_when_its_token_expires() -> None:
    user = make_token_user("ana", ["tag:management", "read:v/*"], expires_at=10.0)
    wanted = StreamRequest(user, EventFilter(), (), "")
    one, broker = EventReader("r", wanted, EventLog("e")), Broker(lambda: "name")
    assert one.sees(SEEN)
    assert not one.sees(UNSEEN)
    assert one.refresh_user(broker, 9_999) is None
    assert one.refresh_user(broker, 10_000) == "token_expired"


def test_an_id_of_another_form_is_unknown() -> None:
    log = EventLog("e")
    for text in ("", "e", "e-", "e-x", "e-1\n", "f-1", "e-" + "9" * 30, "é-1"):
        assert log.position_of(text) is None
    assert log.position_of("e-1") == 1
