"""Selectors read every field of a message, in whatever form its body is."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import attrs
import msgspec
import pytest

from recado.patterns.errors import CompositionError
from recado.patterns.message import DeliveryInfo, Message
from recado.patterns.routing import MessageSelector, to_predicate


class OrderStruct(msgspec.Struct):
    total: float
    due: datetime | None = None
    lines: list[int] = []


@dataclasses.dataclass
class OrderData:
    total: float


@attrs.define
class OrderAttrs:
    total: float


class OrderModel:
    """What a pydantic model offers."""

    def __init__(self, total: float) -> None:
        self.total = total

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"total": self.total}


def matches(text: str, **fields: Any) -> bool:
    return MessageSelector(text)(Message(**{"body": None, **fields}))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("priority = 4", {"priority": 4}),
        ("key LIKE 'orders.%'", {"key": "orders.eu"}),
        ("headers.colour = 'red'", {"headers": {"colour": "red"}}),
        ('headers."x-table".a = 1', {"headers": {"x-table": {"a": 1}}}),
        ("content_type = 'text/plain'", {"content_type": "text/plain"}),
        ("content_encoding = 'gzip'", {"content_encoding": "gzip"}),
        ("correlation_id = 'c'", {"correlation_id": "c"}),
        ("reply_to = 'r'", {"reply_to": "r"}),
        ("message_id = 'm'", {"message_id": "m"}),
        ("type = 't' AND app_id = 'a' AND user_id = 'u'", {"type": "t", "app_id": "a", "user_id": "u"}),
        ("delivery_mode = 2 AND expiration = '1500'", {"expiration": 1.5}),
        ("delivery_mode = 1 AND expiration IS NULL", {"persistent": False}),
        ("timestamp = 1800000000", {"timestamp": datetime.fromtimestamp(1_800_000_000, UTC)}),
        ("timestamp IS NULL AND exchange IS NULL", {}),
        (
            "exchange = 'events'",
            {"delivery": DeliveryInfo(exchange="events", queue="q", redelivered=False, raw_body=b"")},
        ),
    ],
)  # fmt: skip
def test_properties(text: str, fields: dict[str, Any]) -> None:
    assert matches(text, **fields)
    assert not matches(f"NOT ({text})", **fields)


@pytest.mark.parametrize(
    "body",
    [
        {"total": 12},
        OrderStruct(12),
        OrderData(12),
        OrderAttrs(12),
        OrderModel(12),
        b'{"total":12.0}',
        bytearray(b'{"total":12.0}'),
    ],
    ids=lambda body: type(body).__name__,
)
def test_json_is_the_body_object(body: Any) -> None:
    assert matches("json.total > 10", body=body)
    assert matches("body LIKE '{\"total\":12%}'", body=body)
    assert not matches("json.total > 20", body=body)
    assert not matches("json.unknown IS NOT NULL", body=body)


def test_text_bodies() -> None:
    text = {"body": '{"total": 12}', "content_type": "text/plain; charset=utf-8"}
    assert matches("json.total = 12 AND body LIKE '{%}'", **text)
    assert matches("json.total IS NULL AND body = '\"a\"'", body="a")
    assert matches("json.total IS NULL", body="x" * (1 << 20) + "x", content_type="text/plain")


@pytest.mark.parametrize(
    "body", [object(), b"\xff", "\ud800", None, 3, ["total"], {1: {2: object()}}]
)
def test_other_bodies_have_no_fields(body: Any) -> None:
    for content_type in (None, "text/plain"):
        assert matches("json.total IS NULL", body=body, content_type=content_type)


def test_bodies_without_text() -> None:
    assert matches("body IS NULL", body=object())
    recursive: list[Any] = []
    recursive.append(recursive)
    assert matches("body IS NULL AND json.a IS NULL", body=recursive)
    assert matches("body IS NULL", body="\ud800", content_type="text/plain")


def test_an_invalid_selector_is_a_composition_error() -> None:
    with pytest.raises(CompositionError, match="invalid selector: line 1, column 12"):
        MessageSelector("priority > ")
    with pytest.raises(CompositionError, match="the field publisher is not available here"):
        MessageSelector("publisher = 'p'")
    with pytest.raises(CompositionError, match="a selector or a function of the message, not 3"):
        to_predicate(3)  # type: ignore[arg-type]


def test_conditions() -> None:
    selector = MessageSelector("priority = 1")
    assert repr(selector) == "MessageSelector('priority = 1')"
    assert to_predicate(selector) is selector.matches
    assert to_predicate("priority = 1")(Message(body=None, priority=1))
    assert to_predicate(callable) is callable
