"""The recorder: ticks and position are stored together or not at all, and no tick twice."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from recado.apps.quotes.market import Market
from recado.apps.quotes.recorder import TickDatabase, record_ticks
from recado.apps.quotes.tick import Bell, MarketPhase, Quote, Side, Trade
from recado.feeds.vector import Vector

from .stage import PUBLISHER, Given, messages_of

if TYPE_CHECKING:
    from recado.feeds.subscription import Subscription

AT = 1_772_445_600_000_000


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[TickDatabase]:
    with TickDatabase(tmp_path / "ticks.db") as opened:
        yield opened


def rows(file: Path, columns: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(file)
    found = database.execute(f"SELECT {columns} FROM tick ORDER BY sequence").fetchall()
    database.close()
    return found


def test_a_new_file_is_at_the_beginning(ledger: TickDatabase) -> None:
    assert (ledger.position, len(ledger)) == ("", 0)
    assert Vector.from_text(ledger.position) == Vector()


def test_each_kind_of_tick_has_its_columns(ledger: TickDatabase, tmp_path: Path) -> None:
    ticks = (
        Quote("PETR4", AT, 38.0, 38.02, 300, 400),
        Trade("VALE3", AT + 1, 61.5, 200, Side.SELL),
        Bell(AT + 2, MarketPhase.CLOSING),
    )
    ledger.record(messages_of(ticks), "here")
    nothing = (None,) * 4
    assert rows(tmp_path / "ticks.db", "*") == [
        (PUBLISHER, 1, AT, "quote", "PETR4", 38.0, 38.02, 300, 400, *nothing),
        (PUBLISHER, 2, AT + 1, "trade", "VALE3", *nothing, 61.5, 200, "sell", None),
        (PUBLISHER, 3, AT + 2, "bell", None, *nothing, None, None, None, "closing auction"),
    ]
    assert ledger.position == "here"


def test_the_next_life_finds_what_the_last_one_committed(tmp_path: Path) -> None:
    messages = messages_of(islice(Market(1).ticks(), 10))
    with TickDatabase(tmp_path / "ticks.db") as first:
        first.record(messages[:6], "six")
    with TickDatabase(tmp_path / "ticks.db") as second:
        assert (second.position, len(second)) == ("six", 6)
        second.record(messages[6:], "ten")
        assert (second.position, len(second)) == ("ten", 10)


def test_a_tick_that_came_twice_is_refused_and_nothing_changes(ledger: TickDatabase) -> None:
    messages = messages_of(islice(Market(1).ticks(), 10))
    ledger.record(messages[:6], "six")
    with pytest.raises(sqlite3.IntegrityError):
        ledger.record(messages[5:], "ten")
    assert (ledger.position, len(ledger)) == ("six", 6)


def test_a_body_that_is_no_tick_is_passed_over_and_counted(
    ledger: TickDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it would end the recorder again at every start."""
    messages = messages_of(islice(Market(1).ticks(), 3))
    messages[1] = msgspec.structs.replace(messages[1], body=b"?")
    given = cast("Subscription", Given([messages]))
    assert asyncio.run(record_ticks(given, ledger)) == 2
    assert len(ledger) == 2
    assert Vector.from_text(ledger.position) == Vector({PUBLISHER: 3})
    assert "messages skipped because they are not ticks (count=1): the body of" in caplog.text


def test_all_that_comes_is_recorded_with_its_vector(ledger: TickDatabase) -> None:
    messages = messages_of(islice(Market(1).ticks(), 10))
    given = cast("Subscription", Given([messages[:4], messages[4:9], messages[9:]]))
    told: list[int] = []
    assert asyncio.run(record_ticks(given, ledger, on_transaction=told.append)) == 10
    assert told == [10]
    assert Vector.from_text(ledger.position) == Vector({PUBLISHER: 10})
    assert len(ledger) == 10


def test_what_has_come_together_is_one_transaction(ledger: TickDatabase) -> None:
    messages = messages_of(islice(Market(1).ticks(), 25_000))
    given = cast("Subscription", Given([[message] for message in messages]))
    told: list[int] = []
    assert asyncio.run(record_ticks(given, ledger, on_transaction=told.append)) == 25_000
    assert told == [10_000, 20_000, 25_000]
    assert Vector.from_text(ledger.position) == Vector({PUBLISHER: 25_000})


def test_it_ends_at_the_limit_within_a_batch(ledger: TickDatabase) -> None:
    messages = messages_of(islice(Market(1).ticks(), 10))
    given = cast("Subscription", Given([messages[:4], messages[4:9], messages[9:]]))
    assert asyncio.run(record_ticks(given, ledger, limit=5)) == 5
    assert Vector.from_text(ledger.position) == Vector({PUBLISHER: 5})
    assert len(ledger) == 5


def test_messages_that_are_not_ticks_do_not_count_towards_the_limit(ledger: TickDatabase) -> None:
    messages = messages_of(islice(Market(1).ticks(), 10))
    messages[1] = msgspec.structs.replace(messages[1], body=b"?")
    given = cast("Subscription", Given([messages[:4], messages[4:9], messages[9:]]))
    assert asyncio.run(record_ticks(given, ledger, limit=5)) == 5
    assert Vector.from_text(ledger.position) == Vector({PUBLISHER: 6})
