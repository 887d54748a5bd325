"""The table of event types is that of the docs, and describes the data of the events."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from recado.broker.observer import Change
from recado.console.events.types import CHANGE_TYPES, EVENT_TYPES, EventType, render_table
from recado.console.resources.openapi import EVENT_SCHEMAS

PAGE = Path(__file__).parents[2] / "docs" / "management.md"
TABLE = re.compile(r"\| events \| data[^\n]*\n(?:\|[^\n]*\n)+")


def test_the_table_of_the_docs_is_generated() -> None:
    found = TABLE.findall(PAGE.read_text())
    assert found == ["\n".join(render_table()) + "\n"], (
        "the types of events changed; if that is intended, run:"
        " .venv/bin/python -m tests.console.test_event_types"
    )


def test_every_type_has_a_schema_and_a_description() -> None:
    assert EVENT_SCHEMAS.keys() == EVENT_TYPES.keys()
    names = [each.data.__name__ for each in EVENT_TYPES.values()]
    assert len(set(names)) == len({each.data for each in EVENT_TYPES.values()})


@pytest.mark.parametrize("event_type", EVENT_TYPES.values(), ids=lambda each: each.name)
def test_every_type_is_whole(event_type: EventType) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z]+", event_type.name)
    assert event_type.description.endswith(".")
    fields = [field.name for field in msgspec.structs.fields(event_type.data)]
    assert fields[0] == "at"


def test_every_change_of_the_observer_has_a_type() -> None:
    assert {change for _, change in CHANGE_TYPES} == set(Change)


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(TABLE.sub(lambda _: "\n".join(render_table()) + "\n", text))
