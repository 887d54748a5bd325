"""Masked fields: what is replaced, what stays, and which bodies are withheld."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.console.masked_fields import (
    JSON_MAX_BYTES,
    MASKED_JSON_MAX_BYTES,
    InvalidMaskError,
    MaskedFields,
)
from recado.selector import parse

CARD = MaskedFields(("json.card.number", "headers.authorization"))
WITHHELD = (b"", ("body",))


def mask(body: bytes, *paths: str, content_type: str = "", encoding: str = "") -> Any:
    fields = MaskedFields(paths) if paths else CARD
    return fields.mask_body(body, content_type, encoding)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"card": {"number": 4111, "name": "A"}}', b'{"card":{"number":"***","name":"A"}}'),
        (b'{"card": {"number": [1, {"x": 2}]}}', b'{"card":{"number":"***"}}'),
        # Arrays at any level, and names in any case.
        (b'[{"Card":[{"NUMBER":1},2]},3]', b'[{"Card":[{"NUMBER":"***"},2]},3]'),
        # Numbers and texts beside it stay as they were written.
        (
            b'{"n":1.500,"big":123456789012345678901234567890,"e":"\\u00e9","card":{"number":1}}',
            b'{"n":1.500,"big":123456789012345678901234567890,"e":"\\u00e9","card":{"number":"***"}}',
        ),
        (b'{"card":{"numb\\u0065r":1}}', b'{"card":{"number":"***"}}'),
        (b'\xef\xbb\xbf{"card":{"number":1}}', b'{"card":{"number":"***"}}'),
    ],
)
def test_fields_are_replaced(body: bytes, shown: bytes) -> None:
    assert mask(body) == (shown, ("json.card.number",))


@pytest.mark.parametrize(
    "body",
    [
        b'{"number": 1,  "card": 2, "cards": {"number": 3}}',
        b'{"a": "card number"}',
        b'"number"',
        b"17",
        b"",
        b"number=4111",
        b"\x80\x02card number",
        b"<card><number>4111</number></card>",
    ],
)
def test_other_bodies_stay_as_they_are(body: bytes) -> None:
    assert mask(body) == (body, ())
    assert MaskedFields().mask_body(body, "", "gzip") == (body, ())
    assert not MaskedFields()


@pytest.mark.parametrize(
    "body",
    [
        b'{"card":{"number":1}',  # truncated
        b'{"card":{"number":1}}\n{"card":{"number":2}}',  # several documents
        b'{"card":{"number":NaN}}',
        b"{'card':{'number':1}}",
        b'{"card":{"number":1},"x":"\xff"}'[:-1],
        '{"card":{"number":1}}'.encode("utf-16"),
        '{"card":{"number":1}}'.encode("utf-16-be"),
        b'{"card":' + b"[" * 100_000 + b'{"number":1}',
        b" " * 2_000 + b'{"card":{"number":1}',
        b'{"card":{"number":1},"x":"' + b"x" * MASKED_JSON_MAX_BYTES + b'"}',
        b'{"x":"' + b"x" * JSON_MAX_BYTES + b'"}',
        b" " * (JSON_MAX_BYTES + 1),
    ],
)
def test_cmf1_a_body_that_may_have_such_fields_is_withheld(body: bytes) -> None:
    assert mask(body) == WITHHELD


def test_cmf1_an_encoded_body_is_withheld() -> None:
    for encoding in ("gzip", " Deflate", "br", "base64", "x-own"):
        assert mask(b"text", encoding=encoding) == WITHHELD
    for encoding in ("utf-8", "UTF-8", "binary", "identity", ""):
        assert mask(b"text", encoding=encoding) == (b"text", ())
    assert mask(b"number of no object", content_type="application/vnd.x+json") == WITHHELD
    # Without paths in JSON, bodies are not looked at.
    assert mask(b"{", "headers.x", encoding="gzip") == (b"{", ())


def test_a_long_body_without_the_name_is_shown() -> None:
    body = b'{"x":"' + b"x" * (2 * MASKED_JSON_MAX_BYTES) + b'"}'
    assert mask(body) == (body, ())


@pytest.mark.parametrize(
    "body",
    [
        b'{"card":{"number":1},"card":{}}',
        b'{"card":{"number":1},"card":{"number":2}}',
        b'{"card":{},"CARD":{"number":1},"card":2}',
    ],
)
def test_cmf2_a_name_that_is_there_twice(body: bytes) -> None:
    shown = mask(body).body
    assert b"1" not in shown
    assert json.loads(shown)


def test_body_masks_all_of_it() -> None:
    assert mask(b"anything", "json.x", "body") == WITHHELD
    assert not MaskedFields(("json.x", "body")).reads_json


def test_headers() -> None:
    headers = {"Authorization": ["Bearer x"], "n": 1, "a b": {"c": {"d": 1}, "e": [1]}}
    fields = MaskedFields(("headers.authorization", 'headers."a b".c', "json.n"))
    shown, masked = fields.mask_headers(headers)
    assert shown == {"Authorization": "***", "n": 1, "a b": {"c": "***", "e": [1]}}
    assert masked == ("headers.authorization", 'headers."a b".c')
    assert MaskedFields(("json.n",)).mask_headers(headers) == (headers, ())


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("card", "unknown field card"),
        ("json", "expected a name behind json"),
        ("", "expected a value"),
        ("json.a + 1", "expected one field"),
        ("json.a IS NULL OR json.b", "expected one field"),
        ("headers.x-token", "unknown field token"),
    ],
)
def test_an_invalid_path(path: str, reason: str) -> None:
    with pytest.raises(InvalidMaskError, match=f"^{path!r}: {reason}".replace("+", r"\+")):
        MaskedFields((path,))


@pytest.mark.parametrize(
    ("selector", "field"),
    [
        ("json.card.number = '4111'", "json.card.number"),
        ("priority > 1 AND (json.x = 1 OR NOT json.CARD.Number LIKE '4%')", "json.card.number"),
        ("json.card IS NULL", "json.card.number"),
        ("json.card.number.digit = 1", "json.card.number"),
        ("body LIKE '%4111%'", "json.card.number"),
        ("headers.Authorization LIKE 'Basic%'", "headers.authorization"),
        ("json.cards = 1 AND headers.x = 1 AND routing_key = 'authorization'", None),
        ("json.card.name = 'A'", None),
    ],
)
def test_selectors_that_compare_masked_fields_are_found(selector: str, field: str | None) -> None:
    assert CARD.find_probed_field(parse(selector)) == field
    assert MaskedFields().find_probed_field(parse(selector)) is None


def test_a_masked_body_is_compared_by_its_fields() -> None:
    fields = MaskedFields(("body",))
    assert fields.find_probed_field(parse("json.x = 1")) == "body"
    assert fields.find_probed_field(parse("body = 'x'")) == "body"
    assert fields.find_probed_field(parse("headers.x = 1")) is None


SECRET = "a secret that is not shown"
NAMES = st.sampled_from(["card", "Card", "number", "x", "ſ", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3),
    max_leaves=12,
)


def hide(value: Any, names: tuple[str, ...]) -> Any:
    """A model: the value with a secret in place of the field, which may be added."""
    if isinstance(value, list):
        return [hide(each, names) for each in value]
    if isinstance(value, dict):
        hidden = {}
        for name, each in value.items():
            if name.casefold() == names[0]:
                hidden[name] = hide(each, names[1:]) if names[1:] else SECRET
            else:
                hidden[name] = each
        return hidden
    return value


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_no_secret_is_shown(value: Any, ascii_only: bool, indent: int | None) -> None:
    """Whatever the shape of the document, the value at the path is not shown, and the rest is."""
    document = hide(value, ("card", "number"))
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode(errors="replace")
    shown = mask(body)
    assert SECRET.encode() not in shown.body
    if shown.body:
        without = json.dumps(document).replace(json.dumps(SECRET), '"***"')
        assert json.loads(shown.body) == json.loads(without)
