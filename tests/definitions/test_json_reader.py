"""JSON documents are read in bounded steps, with the same result as in one call."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.broker.steps import Steps, run_to_completion
from recado.definitions import json_reader
from recado.definitions.document import DefinitionsError
from recado.definitions.json_reader import read_json


def decoded(value: Any) -> Any:
    """Return a document with the entries of its lists decoded."""
    if isinstance(value, dict):
        return {
            key: [msgspec.json.decode(entry) for entry in each] if isinstance(each, list) else each
            for key, each in value.items()
        }
    return value


def read(text: bytes) -> Any:
    return decoded(run_to_completion(read_json(text)))


def costs(steps: Steps[object]) -> list[int]:
    return list(steps)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\"'{}[],:é "), inner),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.text("abü"), VALUES), st.sampled_from((None, 1)), st.integers(1, 40))
def test_a_document_is_read_as_in_one_call(
    document: dict[str, Any], indent: int | None, window: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_reader, "WINDOW_BYTES", window)
        patch.setattr(json_reader, "WHITESPACE_WINDOWS_MAX_COUNT", 40)
        for ascii_only in (True, False):
            try:
                text = json.dumps(
                    document, indent=indent, ensure_ascii=ascii_only, allow_nan=False
                ).encode()
            except ValueError:  # an infinite number
                return
            assert read(text) == msgspec.json.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        b"{", b"{]", b"nonsense", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}', b"{,}", b"{1:2}",
        b'{"a":[1,]}', b'{"a":[1 2]}', b'{"a":[', b'{"a":[}', b'{"a":[1', b'{"a":[]}}', b'{"a":[]} 1',
        b'{"a":"\xff"}', b'{"a":"\xc3', b'{"a":[' + b"[" * 100_000, b'{"a":"\n"}', b'{"a":[' + b"1" * 5_000 + b"]}",
        b'{"a":NaN}', b'{"a":"\\ud800"}', b'{"\\ud800":1}', b'\xef\xbb\xbf{}', b'{"a":tru}', b'{"a":01}',
        b" " * 1_000_000, b'{"a":' + b" " * 1_000_000 + b"1}",
    ],
)  # fmt: skip
def test_invalid_documents_are_refused(text: bytes) -> None:
    with pytest.raises(DefinitionsError):
        read(text)


@pytest.mark.parametrize("entry", ["NaN", "1e999", '"\\udfff"', "123456789012345678901234567890"])
def test_the_content_of_entries_is_left_to_its_reader(entry: str) -> None:
    (found,) = run_to_completion(read_json(b'{"a":[%s]}' % entry.encode()))["a"]
    assert bytes(found) == entry.encode()


def test_nothing_is_an_empty_document() -> None:
    assert read(b"") == read(b" \n ") == read(b"{}") == {}


def test_other_values_are_no_definitions() -> None:
    with pytest.raises(DefinitionsError, match="must be an object"):
        read(b"[]")


def test_an_error_tells_where_it_is() -> None:
    text = b'{"queues":[' + b'{"name":"q"},' * 10_000 + b"{]}"
    with pytest.raises(DefinitionsError) as refused:
        read(text)
    assert "at character 130011" in str(refused.value)


def test_an_entry_has_a_limit() -> None:
    size = json_reader.VALUE_CHARACTERS_MAX
    overhead = len('{"b":""}')
    long = msgspec.json.encode({"a": [{"b": "x" * (size - overhead)}, 1]})
    assert len(read(long)["a"]) == 2
    for excess in (1, size):
        with pytest.raises(
            DefinitionsError, match="the value at character 6 is longer than 262144"
        ):
            read(msgspec.json.encode({"a": [{"b": "x" * (size - overhead + excess)}, 1]}))


def test_entries_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "ENTRIES_MAX_COUNT", 3)
    assert len(read(b'{"a":[1,2],"b":[3]}')) == 2
    with pytest.raises(DefinitionsError, match="more than 3 entries"):
        read(b'{"a":[1,2],"b":[3,4]}')


def test_steps_are_bounded() -> None:
    entries = [{"name": f"q{number}", "arguments": {"a": "é" * 50}} for number in range(20_000)]
    text = msgspec.json.encode({"queues": entries})
    found = costs(read_json(text))
    window_units = json_reader.WINDOW_BYTES // json_reader.CHARACTERS_PER_UNIT
    assert max(found) <= json_reader.YIELD_UNITS_MIN + window_units
    assert sum(found) >= len(text.decode()) // json_reader.CHARACTERS_PER_UNIT * 0.9
