"""Messages with unusual values, as objects and as a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TEXTS = (
    "",
    "a",
    "A",
    "ab",
    "aab",
    "b",
    "%",
    "_",
    "a%b",
    "a_b",
    "!",
    "\\",
    "a\\b",
    "'",
    '"',
    "`",
    "--",
    "\n",
    "a\nb",
    "\0",
    "carro",
    "um carro novo",
    "é",
    "e\u0301",
    "日本",
    "😀",
    "a😀b",
    "\uffff",
    "\U00010000",
    "${spark.app.name}",
    "1",
    "true",
    "NaN",
    " ",
    "a ",
)
NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    0.5,
    2.0,
    3.0,
    10.0,
    1e15,
    2.0**53,
    2.0**53 + 2,
    1e22,
    1e308,
    5e-324,
    2.2250738585072014e-308,
)
ODD_NUMBERS = (*NUMBERS, float("inf"), float("-inf"), float("nan"))
INTEGERS = (0, 1, 2, 3, 10, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
NAMES = ("a", "b", "x-y", "é", "a.b", "AND", "😀", "with space")
"""Of headers and of fields of a JSON body."""

texts = st.sampled_from(TEXTS) | st.text(max_size=6)
numbers = st.sampled_from(ODD_NUMBERS) | st.floats()
integers = st.sampled_from(INTEGERS) | st.integers(-(2**63), 2**63 - 1)
json_numbers = (
    st.sampled_from(NUMBERS)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**40), 10**40)
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | json_numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=4,
)
tables = st.dictionaries(st.sampled_from(NAMES), json_values)

NO_JSON = (
    b"",
    b"um carro",
    b"\xff\xfe",
    b"{",
    b"[1]",
    b"null",
    b"NaN",
    b'{"a": NaN}',
    b'{"a": 1} x',
    b"{'a': 1}",
    b'{"a": 01}',
    b'{"a": "\xff"}',
    b'{"a": "\t"}',
    b'{"a": 1,}',
    b'\xef\xbb\xbf{"a": 1}',
)
ODD_JSON = (
    b'{"a": 1e400}',
    b'{"a": -1e400, "b": 1}',
    b'{"a": 1e-400}',
    b'{"a": -0}',
    b'{"a": 1.0, "b": 1}',
    b'{"a": 0.1000000000000000055511151231257827, "b": 0.1}',
    b'{"a": 9007199254740993, "b": 9007199254740992}',
    b'{"a": ' + b"9" * 60 + b"}",
    b'{"a": ' + b"9" * 400 + b"}",
    b'{"a": "\\u00e9\\ud83d\\ude00\\n\\/", "b": "\\u0000"}',
    b' \r\n\t{ "a" : { "b" : "a" } } \n',
    b'{"a": "1", "b": "true"}',
)


@dataclass(frozen=True)
class Row:
    """Of each kind one field, and one that is a column of another type than the rest."""

    routing_key: str | None
    message_id: str | None
    sequence: float | None
    offset: int | None
    micros: int | None
    headers: dict[str, Any] | None
    body: bytes | None

    @property
    def timestamp(self) -> float | None:
        return None if self.micros is None else self.micros / 1e6


rows = st.builds(
    Row,
    routing_key=st.none() | texts,
    message_id=st.none() | texts,
    sequence=st.none() | numbers,
    offset=st.none() | integers,
    micros=st.none() | st.integers(-(10**15), 4 * 10**15),
    headers=st.none() | tables,
    body=st.sampled_from(NO_JSON + ODD_JSON)
    | texts.map(str.encode)
    | tables.map(lambda table: json.dumps(table).encode())
    | tables.map(lambda table: json.dumps(table, ensure_ascii=False).encode()),
)

SCHEMA = pa.schema(
    [
        ("routing_key", pa.string()),
        ("message_id", pa.dictionary(pa.int32(), pa.string())),
        ("sequence", pa.float64()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.string()),
        ("body", pa.binary()),
    ]
)


def table(messages: list[Row]) -> pa.Table:
    """The same messages as an archive has them, their headers as JSON."""
    columns = {name: [getattr(each, name) for each in messages] for name in SCHEMA.names}
    columns["timestamp"] = [each.micros for each in messages]
    columns["headers"] = [
        None if each is None else json.dumps(each, ensure_ascii=False)
        for each in columns["headers"]
    ]
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
