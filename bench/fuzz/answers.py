"""Checks the answers to a hostile client: the broker itself must always speak valid AMQP."""

from __future__ import annotations

from typing import Final

from recado.amqp.codec import decode_method
from recado.amqp.errors import AmqpError
from recado.amqp.frames import (
    FRAME_END_CODE,
    FRAME_OVERHEAD_BYTES,
    FRAME_START,
    METHOD_FRAME_TYPE,
    PROTOCOL_HEADER,
)
from recado.amqp.methods import ChannelClose, ConnectionClose

INTERNAL_ERROR: Final = 541
CLOSES: Final = (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28")
LARGEST: Final = 131_072
KINDS: Final = (1, 2, 3, 8)


class Answers:
    """The frames of one connection, as they arrive; `fault` is a frame that the broker must never send."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.codes: list[int] = []
        """The reply codes of the closes."""
        self._data = b""
        self._begun = False

    def feed(self, data: bytes) -> None:
        data = self._data + data
        at = 0
        if not self._begun and len(data) >= len(PROTOCOL_HEADER):
            self._begun = True
            if data.startswith(PROTOCOL_HEADER):
                at = len(PROTOCOL_HEADER)
        while self._begun and len(data) - at >= FRAME_START.size and self.fault is None:
            kind, channel, size = FRAME_START.unpack_from(data, at)
            after = at + size + FRAME_OVERHEAD_BYTES
            if kind not in KINDS or size + FRAME_OVERHEAD_BYTES > LARGEST:
                self.fault = f"a frame of type {kind} with {size} bytes on channel {channel}"
            elif after > len(data):
                break
            elif data[after - 1] != FRAME_END_CODE:
                self.fault = f"a frame without its end on channel {channel}"
            elif kind == METHOD_FRAME_TYPE and data[at + 7 : at + 11] in CLOSES:
                self._closed(data[at + 7 : after - 1])
            at = after
        self._data = data[at:]

    def _closed(self, payload: bytes) -> None:
        try:
            method = decode_method(payload)
        except AmqpError as error:
            self.fault = f"a close that cannot be read: {error}"
            return
        assert isinstance(method, ConnectionClose | ChannelClose)
        self.codes.append(method.reply_code)
        if method.reply_code == INTERNAL_ERROR:
            self.fault = method.reply_text
        elif not method.reply_text.partition(" - ")[2]:
            self.fault = f"a close without an explanation: {method.reply_text!r}"
