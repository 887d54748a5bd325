"""One type for the messages of several senders."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec
import pytest

from recado.patterns.errors import CompositionError, TranslationError
from recado.patterns.message import Message
from recado.patterns.transformation import CanonicalModel, Normaliser
from recado.patterns.translation import Translators
from tests.patterns.translation.shop import Item


class Sale(msgspec.Struct):
    items: list[Item]
    source: str


class SupplierSale(msgspec.Struct):
    """In XML, where only the type tells that one element is a list."""

    entry: list[Item]


def from_supplier(sale: SupplierSale) -> Sale:
    return Sale(sale.entry, "supplier")


def from_text(text: str) -> Sale:
    return Sale([Item(name) for name in text.split(",")], "text")


def from_legacy(body: Any) -> Sale:
    return Sale([Item(body["NAME"])], "legacy")


NORMALISER = Normaliser(
    Sale,
    formats={"application/xml": from_supplier, "Text/Plain": from_text},
    rules={"headers.source = 'legacy'": from_legacy},
)


def received(body: bytes, content_type: str | None, **headers: Any) -> Message[Any]:
    decoded = Translators().decode(body, content_type, Any)
    return Message(body=decoded, content_type=content_type, headers=headers, message_id="m")


@pytest.mark.parametrize(
    ("message", "items", "source"),
    [
        (received(b"<sale><entry name='pen'/></sale>", "application/xml"), [Item("pen")], "supplier"),
        (received(b"pen,ink", "text/plain; charset=utf-8"), [Item("pen"), Item("ink")], "text"),
        (received(b'{"NAME": "pen"}', None, source="legacy"), [Item("pen")], "legacy"),
        (Message(body=b"<s><entry><name>a</name></entry></s>", content_type="application/xml", message_id="m"),
         [Item("a")], "supplier"),
        (Message(body=Sale([], "same"), message_id="m"), [], "same"),
    ],
    ids=["xml", "text", "rule", "bytes", "model"],
)  # fmt: skip
def test_formats_become_one_model(message: Message[Any], items: list[Item], source: str) -> None:
    (output,) = NORMALISER.process(message)
    assert isinstance(output, Message)
    assert output.body == Sale(items, source)
    assert output.content_type == (None if source == "same" else "application/json")
    assert output.message_id == "m"


def test_rules_come_first() -> None:
    rules: dict[Any, Any] = {lambda message: message.priority == 9: lambda body: Sale([], "urgent")}
    step = Normaliser(
        Sale,
        formats={"application/json": from_legacy},
        rules=rules,
        content_type="application/yaml",
    )
    (output,) = step.process(Message(body={"NAME": "pen"}, priority=9))
    assert isinstance(output, Message)
    assert (output.body.source, output.content_type) == ("urgent", "application/yaml")
    (output,) = step.process(Message(body={"NAME": "pen"}))
    assert isinstance(output, Message)
    assert output.body.source == "legacy"


def test_other_formats_are_invalid_messages() -> None:
    with pytest.raises(
        TranslationError,
        match=r"normaliser of Sale .* content type is 'image/png'",
    ):
        NORMALISER.process(Message(body={}, content_type="image/png"))
    with pytest.raises(
        TranslationError, match=re.escape("missing required field `name` - at `$.entry[0]`")
    ):
        NORMALISER.process(received(b"<s><entry><id>1</id></entry></s>", "application/xml"))


def test_functions_must_return_the_model() -> None:
    step = Normaliser(Sale, formats={"application/json": lambda body: body})
    with pytest.raises(TypeError, match="returned dict, not Sale"):
        step.process(Message(body={}))


def test_callables_without_hints_get_the_body() -> None:
    sale = partial(Sale, source="partial")
    (output,) = Normaliser(Sale, formats={"application/json": sale}).process(
        Message(body=[Item("pen")])
    )
    assert isinstance(output, Message)
    assert output.body == Sale([Item("pen")], "partial")


def test_a_normaliser_needs_formats() -> None:
    with pytest.raises(CompositionError, match="formats, rules or both"):
        Normaliser(Sale)


def test_a_canonical_model_converts_bodies() -> None:
    step = CanonicalModel(Item)
    for body in ({"name": "pen"}, Item("pen"), b'{"name":"pen"}'):
        (output,) = step.process(Message(body=body))
        assert isinstance(output, Message)
        assert output.body == Item("pen")
    with pytest.raises(
        TranslationError, match=re.escape("Expected `int`, got `str` - at `$.amount`")
    ):
        step.process(Message(body={"name": "pen", "amount": "2"}))
