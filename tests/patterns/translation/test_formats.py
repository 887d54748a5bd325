"""Each format with each kind of type, charsets, and bodies made to harm."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from recado.patterns.errors import TranslationError
from recado.patterns.translation import Translators
from tests.patterns.translation.shop import (
    AttrsOrder,
    Basket,
    Colour,
    DataclassOrder,
    Item,
    Order,
    PydanticItem,
    PydanticOrder,
    TypedDictOrder,
)

OBJECT_FORMATS = ["application/json", "application/xml", "application/yaml", "application/msgpack"]
ID = UUID("7a5b7f9c-3f4c-4a8e-9d53-2f4c1b0a9e11")
PLACED = datetime(2026, 11, 19, 19, 30, tzinfo=UTC)
TYPED_DICT: TypedDictOrder = {"id": 1, "names": ["a", "b"]}
PYDANTIC = PydanticOrder(
    id=ID, placed=PLACED, total=Decimal("9.50"), items=[PydanticItem(name="pen")]
)


@pytest.mark.parametrize("content_type", OBJECT_FORMATS)
@pytest.mark.parametrize(
    ("target", "value"),
    [
        (
            Order,
            Order(ID, PLACED, Decimal("12.30"), [Item("pen", 2)], Colour.BLUE, "hi", 0.5, True),
        ),
        (Order, Order(ID, PLACED, Decimal("0"), [])),
        (DataclassOrder, DataclassOrder(1, [Item("pen")])),
        (TypedDictOrder, TYPED_DICT),
        (AttrsOrder, AttrsOrder(1, [Item("pen"), Item("ink", 3)])),
        (PydanticOrder, PYDANTIC),
        (Basket, Basket(PYDANTIC)),
        (list[Item], [Item("pen"), Item("ink")]),
        (int, 5),
        (str, "été"),
        (list[datetime], [PLACED]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_types(content_type: str, target: Any, value: Any) -> None:
    registry = Translators()
    body, used = registry.encode(value, content_type)
    assert used == content_type
    decoded = registry.decode(body, content_type, target)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize("content_type", OBJECT_FORMATS)
def test_a_model_of_pydantic_names_the_field(content_type: str) -> None:
    registry = Translators()
    body, _ = registry.encode(
        {"order": {"id": str(ID), "placed": "yesterday", "total": "1"}}, content_type
    )
    with pytest.raises(TranslationError, match="placed"):
        registry.decode(body, content_type, Basket)


@pytest.mark.parametrize("content_type", OBJECT_FORMATS)
def test_other_types_are_refused(content_type: str) -> None:
    registry = Translators()
    with pytest.raises(TranslationError, match=r"builtins\.object is not supported"):
        registry.encode([object()], content_type)
    body, _ = registry.encode([1], content_type)
    with pytest.raises(TranslationError, match=r"Translators is not supported"):
        registry.decode(body, content_type, list[Translators])


def test_text() -> None:
    registry = Translators()
    for content_type in ("text/plain", "application/text"):
        assert registry.encode("été", content_type) == ("été".encode(), content_type)
        assert registry.decode("été".encode(), content_type, str) == "été"
        with pytest.raises(TranslationError, match="from str, not from int"):
            registry.encode(1, content_type)
        with pytest.raises(TranslationError, match="as str, not as <class 'int'>"):
            registry.decode(b"1", content_type, int)
        with pytest.raises(TranslationError, match="'utf-8' codec can't decode"):
            registry.decode(b"\xff", content_type, str)


@pytest.mark.parametrize("name", ["text/plain", "application/json"])
@pytest.mark.parametrize("charset", ["iso-8859-1", "UTF-16", '"windows-1252"', "utf8", "Latin1"])
def test_charsets(name: str, charset: str) -> None:
    registry = Translators()
    content_type = f"{name}; charset={charset}"
    body, used = registry.encode("été", content_type)
    assert used == content_type
    assert body.decode(charset.strip('"')).strip('"') == "été"
    assert registry.decode(body, content_type, str) == "été"


@pytest.mark.parametrize(
    "charset", ["klingon", "punycode", "idna", "zlib_codec", "unicode_escape", "\0", ""]
)
@pytest.mark.parametrize("name", ["text/plain", "application/json"])
def test_charsets_that_are_unknown_or_slow_are_refused(name: str, charset: str) -> None:
    registry = Translators()
    with pytest.raises(TranslationError, match="unknown charset"):
        registry.decode(b"1", f"{name}; charset={charset}", str)
    with pytest.raises(TranslationError, match="unknown charset"):
        registry.encode("1", f"{name}; charset={charset}")


DEEP = 2_000_000


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"[" * DEEP + b"]" * DEEP),
        ("application/json", b'{"a":' * DEEP),
        ("application/json", b"\xff\xfe[]"),
        ("application/json", b"9" * DEEP),
        ("application/json", b""),
        ("application/json", b"[1,"),
        ("application/json", b'"\xff"'),
        ("application/msgpack", b"\x91" * DEEP),
        ("application/msgpack", b"\x81\xa1a" * DEEP),
        ("application/msgpack", b"\xdf\xff\xff\xff\xff"),
        ("application/msgpack", b"\xc1"),
        ("application/msgpack", b""),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("target", [Any, dict[str, Item], Item])
@pytest.mark.timeout(20)
def test_bodies_made_to_harm(content_type: str, body: bytes, target: Any) -> None:
    with pytest.raises(TranslationError, match="cannot be decoded as"):
        Translators().decode(body, content_type, target)


@pytest.mark.parametrize("depth", [DEEP])
def test_deep_values_in_ignored_fields(depth: int) -> None:
    registry = Translators()
    with pytest.raises(TranslationError):
        registry.decode(b'{"name":"pen","new":' + b"[" * depth, "application/json", Item)
    with pytest.raises(TranslationError):
        registry.decode(
            b"\x82\xa4name\xa3pen\xa3new" + b"\x91" * depth, "application/msgpack", Item
        )


@pydantic.dataclasses.dataclass
class PydanticDataclass:
    id: pydantic.PositiveInt


class Nested(msgspec.Struct):
    parts: dict[str, list[PydanticDataclass] | None] = {}
    nested: Nested | None = None


@pytest.mark.parametrize("content_type", OBJECT_FORMATS)
@pytest.mark.parametrize("target", [PydanticDataclass, list[PydanticDataclass], Nested])
def test_dataclasses_of_pydantic_are_refused(content_type: str, target: Any) -> None:
    """msgspec would decode them without their validators."""
    with pytest.raises(TranslationError, match="PydanticDataclass is a dataclass of pydantic"):
        Translators().decode(b"{}", content_type, target)


T = TypeVar("T")


class StructBox(msgspec.Struct, Generic[T]):
    value: T


class PydanticBox(pydantic.BaseModel, Generic[T]):
    value: T


@pytest.mark.parametrize("content_type", OBJECT_FORMATS)
def test_generic_types(content_type: str) -> None:
    registry = Translators()
    values: list[tuple[Any, Any]] = [
        (StructBox[int], StructBox(1)),
        (PydanticBox[int], PydanticBox[int](value=1)),
        (PydanticBox[int] | None, PydanticBox[int](value=1)),
        (PydanticBox[int] | None, None),
        (list[PydanticBox[list[int]]], [PydanticBox[list[int]](value=[1])]),
    ]
    for target, value in values:
        assert registry.decode(*registry.encode(value, content_type), target) == value
