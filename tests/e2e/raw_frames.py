"""Frames as bytes, right and wrong, for tests that compare how brokers answer protocol errors.

| type u8 | channel u16 | size u32 | payload, `size` bytes | 0xCE |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from recado.amqp import methods as m
from recado.amqp.codec import encode_method

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
CLOSES = ((10, 50), (20, 40))

_ENVELOPE = struct.Struct(">BHI")
_IDS = struct.Struct(">HH")


class Answer(NamedTuple):
    """A method from a broker; for a close the reply code and the ids of the method that failed."""

    channel: int
    name: str
    code: int = 0
    failed: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        if not self.code:
            return self.name
        return f"{self.name}({self.code}, {self.failed[0]}, {self.failed[1]})"


def frame(kind: int, channel: int, payload: bytes, *, size: int = -1, end: int = END) -> bytes:
    """A frame, with another size or another end than its own if they are given."""
    size = len(payload) if size < 0 else size
    return _ENVELOPE.pack(kind, channel, size) + payload + bytes((end,))


def method(channel: int, of: m.Method) -> bytes:
    return frame(METHOD, channel, encode_method(of))


def content_header(
    channel: int,
    body_size: int = 0,
    *,
    class_id: int = 60,
    weight: int = 0,
    properties: bytes = b"\0\0",
) -> bytes:
    payload = struct.pack(">HHQ", class_id, weight, body_size) + properties
    return frame(HEADER, channel, payload)


class Decoder:
    """Bytes from a broker in, answers out; content and heartbeats are left out."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Answer]:
        buffer = self._buffer + data
        answers: list[Answer] = []
        if buffer.startswith(PROTOCOL_HEADER):
            answers.append(Answer(0, "protocol header"))
            buffer = buffer[len(PROTOCOL_HEADER) :]
        while len(buffer) >= _ENVELOPE.size:
            kind, channel, size = _ENVELOPE.unpack_from(buffer)
            after = _ENVELOPE.size + size + 1
            if len(buffer) < after:
                break
            if kind == METHOD:
                answers.append(_answer(channel, buffer[_ENVELOPE.size : after - 1]))
            buffer = buffer[after:]
        self._buffer = buffer
        return answers


def _answer(channel: int, payload: bytes) -> Answer:
    ids = _IDS.unpack_from(payload)
    name = m.METHODS[ids].name
    if ids not in CLOSES:
        return Answer(channel, name)
    (code,) = struct.unpack_from(">H", payload, 4)
    return Answer(channel, name, code, _IDS.unpack(payload[-4:]))
