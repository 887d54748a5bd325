"""The offset in the header of a delivery, against encoding the properties again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.frames import encode_content, extract_properties, find_header_end
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.values import FieldTable, Int64
from recado.broker.stream_offset_header import OFFSET_HEADER, split_header

TEXTS = st.text(max_size=5)


@given(
    content_type=st.none() | TEXTS,
    content_encoding=st.none() | TEXTS,
    headers=st.none()
    | st.dictionaries(TEXTS | st.just(OFFSET_HEADER), st.integers(0, 9) | TEXTS, max_size=3),
    rest=st.fixed_dictionaries(
        {},
        optional={
            "delivery_mode": st.just(2),
            "message_id": TEXTS,
            "timestamp": st.just(5),
            "cluster_id": TEXTS,
        },
    ),
    channel=st.integers(1, 9),
    offset=st.integers(0, 2**63 - 1),
)
def test_the_offset_is_the_last_header(
    content_type: str | None,
    content_encoding: str | None,
    headers: dict[str, Any] | None,
    rest: dict[str, Any],
    channel: int,
    offset: int,
) -> None:
    properties = Properties(
        content_type=content_type, content_encoding=content_encoding, headers=headers, **rest
    )
    content = encode_content(channel, encode_properties(properties), b"body", 4096)
    before, after = split_header(content[: find_header_end(content)])
    others = {k: v for k, v in (headers or {}).items() if k != OFFSET_HEADER}
    properties.headers = {**others, OFFSET_HEADER: Int64(offset)}
    wanted = encode_content(channel, encode_properties(properties), b"body", 4096)
    assert before + offset.to_bytes(8, "big") + after == wanted[: find_header_end(wanted)]


@pytest.mark.parametrize("header", ["x" * 2000, "short"])
def test_headers_of_any_length(header: str) -> None:
    content = encode_content(1, encode_properties(Properties(headers={"a": header})), b"", 4096)
    before, after = split_header(content)
    stamped = before + bytes(8) + after
    assert decode_properties(extract_properties(stamped)).headers == {"a": header, OFFSET_HEADER: 0}


def test_a_message_that_only_speaks_of_the_header() -> None:
    properties = Properties(content_type=OFFSET_HEADER)
    content = encode_content(1, encode_properties(properties), b"", 4096)
    before, after = split_header(content)
    found = decode_properties(extract_properties(before + bytes(8) + after))
    assert found == Properties(content_type=OFFSET_HEADER, headers={OFFSET_HEADER: 0})


def test_an_old_offset_is_replaced() -> None:
    """A message that was read from a stream was published to another one."""
    headers: FieldTable = {OFFSET_HEADER: Int64(7), "a": 1}
    content = encode_content(1, encode_properties(Properties(headers=headers)), b"", 4096)
    before, after = split_header(content)
    found = decode_properties(extract_properties(before + bytes(8) + after))
    assert found.headers == {"a": 1, OFFSET_HEADER: 0}
