"""The registry: which format a message gets, and which errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Annotated, Any

import msgspec
import pytest

from recado.patterns.errors import TranslationError, UnknownContentTypeError
from recado.patterns.translation import Decode, Encode, Translators, translators
from tests.patterns.translation.shop import Item, StrictOrder

ITEM = Item("pen", 2)
JSON = b'{"name":"pen","amount":2}'


class RepeatTranslator:
    """Writes the letter x as often as the number says."""

    content_types = ("text/x-repeat",)

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        letter = parameters.get("letter", "x").encode()
        return lambda value: letter * value

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        return len


@pytest.mark.parametrize("content_type", [None, "", "image/png", "nonsense", ";;", "application/"])
def test_sending_falls_back_to_json_and_corrects_the_content_type(content_type: str | None) -> None:
    assert Translators().encode(ITEM, content_type) == (JSON, "application/json")


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "text/json",
        "application/vnd.shop.item+json",
    ],
)
def test_a_known_content_type_is_kept(content_type: str) -> None:
    registry = Translators()
    assert registry.encode(ITEM, content_type) == (JSON, content_type)
    assert registry.decode(JSON, content_type, Item) == ITEM


@pytest.mark.parametrize("body", [b"\x89PNG", bytearray(b"\x89PNG"), memoryview(b"\x89PNG")])
def test_bytes_are_sent_as_they_are(body: Any) -> None:
    registry = Translators()
    assert registry.encode(body, "image/png") == (b"\x89PNG", "image/png")
    assert registry.encode(body) == (b"\x89PNG", "application/octet-stream")
    assert registry.encode(body, "application/json") == (b"\x89PNG", "application/json")


@pytest.mark.parametrize("content_type", [None, "image/png", "application/json", "text/plain"])
def test_a_handler_for_bytes_receives_every_body_as_it_is(content_type: str | None) -> None:
    assert Translators().decode(b"\x89PNG", content_type, bytes) == b"\x89PNG"


def test_octet_streams_are_bytes() -> None:
    registry = Translators()
    decoded: object = registry.decode(b"1", "application/octet-stream", Any)
    assert decoded == b"1"
    with pytest.raises(TranslationError, match="read as bytes"):
        registry.decode(b"1", "application/octet-stream", int)
    with pytest.raises(TranslationError, match="from bytes, not from int"):
        registry.encode(1, "application/octet-stream")


def test_a_missing_content_type_is_json_or_text_by_the_type_of_the_handler() -> None:
    registry = Translators()
    assert registry.decode(JSON, None, Item) == ITEM
    assert registry.decode(JSON, "", Item) == ITEM
    assert registry.decode(b"hello", None, str) == "hello"
    decoded: object = registry.decode(b'{"a": [1]}', None, Any)
    assert decoded == {"a": [1]}


def test_an_unknown_content_type_names_itself_and_the_known_ones() -> None:
    with pytest.raises(UnknownContentTypeError) as caught:
        Translators().decode(b"", "image/png", Item)
    assert "'image/png'" in str(caught.value)
    assert "application/json, " in str(caught.value)
    assert "text/plain" in str(caught.value)


def test_errors_name_the_field() -> None:
    with pytest.raises(TranslationError) as caught:
        Translators().decode(b'{"name":"pen","amount":"2"}', "application/json", Item)
    assert str(caught.value) == (
        "body of 27 bytes cannot be decoded as application/json to Item: "
        "Expected `int`, got `str` - at `$.amount`"
    )


def test_unknown_fields_are_accepted_unless_the_type_forbids_them() -> None:
    registry = Translators()
    assert registry.decode(b'{"name":"pen","new":1}', None, Item) == Item("pen")
    with pytest.raises(TranslationError, match="unknown field `new`"):
        registry.decode(b'{"id":1,"new":1}', None, StrictOrder)


def test_large_bodies_are_refused_in_both_directions() -> None:
    registry = Translators(body_bytes_max=10)
    assert registry.encode("12345678") == (b'"12345678"', "application/json")
    for value in ("123456789", b"12345678901"):
        with pytest.raises(TranslationError, match="body of 11 bytes is larger than 10 bytes"):
            registry.encode(value)
    for target in (str, bytes):
        with pytest.raises(TranslationError, match="body of 11 bytes is larger than 10 bytes"):
            registry.decode(b"12345678901", None, target)


def test_registered_translators_come_first_and_have_parameters() -> None:
    registry = Translators(RepeatTranslator())
    assert registry.encode(3, "text/x-repeat; letter=y") == (b"yyy", "text/x-repeat; letter=y")
    assert registry.decode(b"xxxx", "text/x-repeat", int) == 4
    assert "text/x-repeat" in registry.content_types
    assert registry.encode(3, "text/plain+x")[1] == "application/json"

    class OwnText(RepeatTranslator):
        content_types = ("Text/Plain",)

    registry.register(OwnText())
    assert registry.encode(3, "text/plain") == (b"xxx", "text/plain")


def test_register_changes_later_calls() -> None:
    registry = Translators()
    assert registry.encode(3, "text/x-repeat")[1] == "application/json"
    registry.register(RepeatTranslator())
    assert registry.encode(3, "text/x-repeat")[1] == "text/x-repeat"


def test_installed_translators_are_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed = [
        EntryPoint("repeat", f"{__name__}:RepeatTranslator", translators.ENTRY_POINT_GROUP),
        EntryPoint("broken", "recado.no_such_module:Broken", translators.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(translators, "entry_points", lambda group: installed)
    registry = Translators()
    with caplog.at_level(logging.ERROR):
        assert registry.decode(b"xx", "text/x-repeat", int) == 2
    assert "translator not loaded" in caplog.text
    assert "recado.no_such_module" in caplog.text


def test_errors_of_a_translator_become_translation_errors() -> None:
    with pytest.raises(TranslationError, match="str cannot be encoded as text/x-repeat: "):
        Translators(RepeatTranslator()).encode("text", "text/x-repeat")


def test_decoders_are_cached() -> None:
    registry = Translators()
    assert registry.decoder("application/json", Item) is registry.decoder("application/json", Item)


def test_types_that_cannot_be_hashed() -> None:
    positive = Annotated[int, msgspec.Meta(gt=0, extra={"unit": "s"})]
    assert Translators().decode(b"1", None, positive) == 1


def test_many_content_types_from_the_network_need_no_memory() -> None:
    registry = Translators()
    for number in range(3000):
        assert registry.decode(b"1", f"application/json; n={number}", int) == 1
        registry.encode(1, f"application/x-{number}")
    assert registry._find_decoder.cache_info().currsize <= 1024
    assert registry._find_encoder.cache_info().currsize <= 1024


def test_convert_passes_through_the_format() -> None:
    registry = Translators()
    assert registry.convert(ITEM, None, Item) is ITEM
    unchanged: object = registry.convert(ITEM, None, Any)
    assert unchanged is ITEM
    assert registry.convert({"name": "pen"}, None, Item) == Item("pen")
    assert registry.convert(JSON, None, Item) == ITEM
    assert registry.convert(ITEM, "application/xml", dict[str, str]) == {
        "name": "pen",
        "amount": "2",
    }
    document = registry.decode(b"<a><Item name='pen'>text</Item></a>", "text/xml", Any)
    assert registry.convert(document, "text/xml", dict[str, list[Item]]) == {"Item": [Item("pen")]}
    with pytest.raises(TranslationError, match="Expected `int`, got `str`"):
        registry.convert({"name": "pen", "amount": "2"}, None, Item)
