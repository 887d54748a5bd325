"""Content filters: what they keep and drop."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.patterns.errors import CompositionError
from recado.patterns.message import Message
from recado.patterns.transformation import ContentFilter
from tests.patterns.translation.shop import Item, Order, PydanticItem

BODY: dict[str, Any] = {
    "id": 1,
    "customer": {"name": "Ana", "card": {"number": "5", "owner": "Ana"}, "e.mail": "a@b"},
    "items": [{"name": "pen", "cost": 1}, {"name": "ink"}, 5, None],
    "note": None,
}


def run(step: ContentFilter, body: Any) -> Any:
    (output,) = step.process(Message(body=body, priority=3))
    assert isinstance(output, Message)
    assert output.priority == 3
    return output.body


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        (["id", "note", "missing"], {"id": 1, "note": None}),
        (
            ["customer.name", "items.name"],
            {"customer": {"name": "Ana"}, "items": [{"name": "pen"}, {"name": "ink"}]},
        ),
        (
            ["customer.card", "customer.card.number"],
            {"customer": {"card": BODY["customer"]["card"]}},
        ),
        (
            ["customer.card.number", "customer.card"],
            {"customer": {"card": BODY["customer"]["card"]}},
        ),
        ([("customer", "e.mail")], {"customer": {"e.mail": "a@b"}}),
        (["id.deeper", "note.deeper"], {}),
        ([], {}),
    ],
)
def test_keep(paths: list[str], kept: Any) -> None:
    assert run(ContentFilter(keep=paths), BODY) == kept


@pytest.mark.parametrize(
    ("paths", "changes"),
    [
        (["note", "missing", "id.deeper", "note.deeper"], {"note": ...}),
        (["items.cost"], {"items": [{"name": "pen"}, {"name": "ink"}, 5, None]}),
        (["customer.card", "customer.e.mail"], {"customer": {"name": "Ana", "e.mail": "a@b"}}),
        (
            [("customer", "e.mail"), "customer.card", "customer.card.owner"],
            {"customer": {"name": "Ana"}},
        ),
        (
            ["customer.card.owner"],
            {"customer": {"name": "Ana", "card": {"number": "5"}, "e.mail": "a@b"}},
        ),
        ([], {}),
    ],
)
def test_drop(paths: list[str], changes: dict[str, Any]) -> None:
    expected = {name: part for name, part in {**BODY, **changes}.items() if part is not ...}
    assert run(ContentFilter(drop=paths), BODY) == expected


def test_the_original_is_not_changed() -> None:
    before = repr(BODY)
    run(ContentFilter(drop=["customer.name", "items.name"]), BODY)
    assert repr(BODY) == before


def test_objects_become_dicts_with_their_values() -> None:
    placed = datetime(2026, 11, 19, tzinfo=UTC)
    order = Order(UUID(int=1), placed, Decimal("9.50"), [Item("pen")])
    kept = run(ContentFilter(keep=["id", "placed", "total", "items.amount"]), order)
    assert kept == {
        "id": UUID(int=1),
        "placed": placed,
        "total": Decimal("9.50"),
        "items": [{"amount": 1}],
    }
    assert run(ContentFilter(drop=["amount"]), PydanticItem(name="pen")) == {"name": "pen"}
    assert run(ContentFilter(keep=["a.name"]), {"a": (Item("pen"),)}) == {"a": [{"name": "pen"}]}


@pytest.mark.parametrize("body", ["text", 5, b"raw", None])
def test_bodies_without_fields(body: object) -> None:
    assert run(ContentFilter(keep=["a"]), body) == {}
    assert run(ContentFilter(drop=["a"]), body) == body


JSON = st.recursive(
    st.none() | st.integers(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from("abc"), parts),
    max_leaves=12,
)
PATHS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), max_size=4)


@given(body=JSON, paths=PATHS)
def test_what_is_kept_and_what_is_dropped_complement_each_other(body: Any, paths: Any) -> None:
    """A leaf at or below a path is kept, and is not there after a drop."""
    kept = leaves(run(ContentFilter(keep=paths), body))
    dropped = leaves(run(ContentFilter(drop=paths), body))
    for leaf in leaves(body):
        covered = any(leaf[0][: len(path)] == path for path in paths)
        assert (leaf in kept) is covered
        assert (leaf in dropped) is not covered


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in leaves(part, (*path, name))]
    if isinstance(value, list):
        return [leaf for part in value for leaf in leaves(part, path)]
    return [(path, value)]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"keep": ["a"], "drop": ["b"]},
        {"keep": [""]},
        {"keep": ["a..b"]},
        {"drop": "a.b"},
        {"drop": [()]},
    ],
)
def test_wrong_arguments(arguments: Any) -> None:
    with pytest.raises(CompositionError):
        ContentFilter(**arguments)
