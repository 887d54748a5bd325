"""Protobuf, with classes that protobuf itself generates."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct

from recado.patterns.errors import TranslationError
from recado.patterns.translation import Translators

PROTOBUF = "application/x-protobuf"


@pytest.mark.parametrize("content_type", [PROTOBUF, "application/protobuf; messageType=Duration"])
def test_generated_classes(content_type: str) -> None:
    registry = Translators()
    duration = Duration(seconds=5)
    assert registry.encode(duration, content_type) == (duration.SerializeToString(), content_type)
    assert registry.decode(duration.SerializeToString(), content_type, Duration) == duration


def test_other_types_are_refused() -> None:
    registry = Translators()
    with pytest.raises(TranslationError, match="from generated message classes, not from dict"):
        registry.encode({}, PROTOBUF)
    with pytest.raises(
        TranslationError, match="as a generated message class, not as <class 'dict'>"
    ):
        registry.decode(b"", PROTOBUF, dict)
    with pytest.raises(TranslationError, match="Duration is not supported"):
        registry.encode(Duration())


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\xff\xff\xff\x7f", b"\x0a\x02\x0a\xff"])
def test_wrong_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(TranslationError, match="cannot be decoded"):
        Translators().decode(body, PROTOBUF, Struct)


def test_nesting_is_bounded() -> None:
    body = b""
    for _ in range(200):  # a list value in a list value
        body = b"\x0a" + _length(len(body)) + body
        body = b"\x32" + _length(len(body)) + body
    body = b"\x12" + _length(len(body)) + body
    with pytest.raises(TranslationError, match="cannot be decoded"):
        Translators().decode(b"\x0a" + _length(len(body)) + body, PROTOBUF, Struct)


def _length(size: int) -> bytes:
    encoded = b""
    while size > 127:
        encoded, size = encoded + bytes([size & 127 | 128]), size >> 7
    return encoded + bytes([size])
