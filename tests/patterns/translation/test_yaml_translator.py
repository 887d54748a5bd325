"""YAML: the schema, and documents made to harm."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from recado.patterns.errors import TranslationError
from recado.patterns.translation import Translators, YamlTranslator
from tests.patterns.translation.shop import Item

YAML = "application/yaml"


def decode(text: str, target: Any = Any) -> Any:
    return Translators().decode(text.encode(errors="surrogatepass"), YAML, target)


def encode(value: object) -> str:
    return Translators().encode(value, YAML)[0].decode()


def test_the_form_of_an_object() -> None:
    item = Item("été", 2)
    assert encode([item, item]) == "- name: été\n  amount: 2\n- name: été\n  amount: 2\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("", None),
        ("~", None),
        ("null", None),
        ("'null'", "null"),
        ("!!str 5", "5"),
        ("017", 17),
        ("0o17", 15),
        ("0xfF", 255),
        ("-5", -5),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-11-19", "2026-11-19"),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("-.INF", float("-inf")),
        (".", "."),
        ("<<", "<<"),
        ("=", "="),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
    ],
)
def test_scalars(text: str, value: object) -> None:
    decoded = decode(text)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *("no", "on", "y", "~", "null", "", "017", "0o17", "1e3", "1_000", "12:30", "2026-11-19"),
        *("<<", "=", "0x1F", ".5", ".inf", ".NaN", "1.", "+1", " a ", "a: b", "#", "- a"),
        *("\x85", "\u2028", "\x07"),
    ],
)
def test_strings_are_read_as_strings_by_both_versions(text: str) -> None:
    assert decode(encode([text])) == [text]
    assert yaml.safe_load(encode([text])) == [text]


LAUGHS = "a0: &a0 [ha]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 10}]\n" for n in range(1, 10))
MIB_BYTES = 1 << 20


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (LAUGHS, "anchors and aliases are not accepted"),
        ("a: &a [*a]", "anchors and aliases are not accepted"),
        ("[*a]", "anchors and aliases are not accepted"),
        ("!!python/object/apply:os.system [ls]", "tags are not accepted: tag:yaml.org,2002:python"),
        ("a: !!binary aGk=", "tags are not accepted"),
        ("!Order {a: 1}", "tags are not accepted: !Order"),
        ("{a: 1, a: 2}", "duplicate key 'a'"),
        ("{1: 1, true: 2}", "duplicate key 'True'"),
        ("{[a]: 1}", "a key is a list or a mapping"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("[" * (16 * MIB_BYTES), "nested deeper than 100 levels"),
        ("{a: " * (4 * MIB_BYTES), "nested deeper than 100 levels"),
        ("- " * (8 * MIB_BYTES), "nested deeper than 100 levels"),
        ("? " * (8 * MIB_BYTES), "nested deeper than 100 levels"),
        ("[" + "1," * 300_000 + "]", "more than 100000 values"),
        (
            "".join(f"%TAG !a{n}! tag:a\n" for n in range(500_000)) + "--- a",
            "more than 100 tag directives",
        ),
        ("9" * MIB_BYTES, "integer string conversion"),
        ("a: b: c", "mapping values are not allowed"),
        ("[1", "did not find expected"),
        ("\0", "control characters are not allowed"),
        ("\ud800", "'utf-8' codec can't decode"),
    ],
    ids=lambda value: value[:20],
)
@pytest.mark.parametrize("target", [Any, Item])
@pytest.mark.timeout(30)
def test_documents_made_to_harm(body: str, text: str, target: Any) -> None:
    with pytest.raises(TranslationError) as caught:
        decode(body, target)
    assert text in str(caught.value)


def test_values_that_are_too_deep_are_refused_when_they_are_sent() -> None:
    value: Any = "x"
    for _ in range(100):
        value = [value]
    assert decode(encode(value)) == value
    with pytest.raises(TranslationError, match="deeper than 100"):
        encode([value])
    value.append(value)
    with pytest.raises(TranslationError):
        encode(value)


def test_typed_errors_name_the_field() -> None:
    with pytest.raises(TranslationError, match=r"Expected `int`, got `str` - at `\$\[0\]\.amount`"):
        decode("- name: a\n  amount: '1'\n", list[Item])


def test_charset() -> None:
    registry = Translators()
    body, used = registry.encode({"a": "é"}, "text/yaml; charset=utf-16")
    assert body.decode("utf-16") == "a: é\n"
    assert registry.decode(body, used, dict[str, str]) == {"a": "é"}


def test_the_number_of_values_is_an_option() -> None:
    registry = Translators(YamlTranslator(values_max=3))
    assert registry.decode(b"[1, 2]", YAML, list[int]) == [1, 2]
    with pytest.raises(TranslationError, match="more than 3 values"):
        registry.decode(b"[1, 2, 3]", YAML, list[int])
