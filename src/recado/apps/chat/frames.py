"""What browsers and the server say to each other on a WebSocket: JSON, one object per text frame.

    server to browser, not masked (RFC 6455):  | 0x81 | length u8, or 126 and u16, or 127 and u64 | JSON |

A frame for many browsers is encoded once, and its bytes are written to all of their sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from .conversation import to_wire
from .messages import StoredMessage
from .names import RefusedError

FINAL_TEXT_CODE: Final = 0x81
SHORT_MAX_BYTES: Final = 125
MEDIUM_MAX_BYTES: Final = 0xFFFF
LENGTH_U16_CODE: Final = 126
LENGTH_U64_CODE: Final = 127
POSITIONS_MAX_COUNT: Final = 1_000


class ResumeFrame(msgspec.Struct, frozen=True, tag="resume"):
    """The first frame: the last position seen in each conversation."""

    positions: dict[str, int] | None = None


class SendFrame(msgspec.Struct, frozen=True, tag="send"):
    client_id: str
    conversation: str
    text: str
    reply_to: str | None = None


class EditFrame(msgspec.Struct, frozen=True, tag="edit"):
    client_id: str
    id: str
    text: str


class DeleteFrame(msgspec.Struct, frozen=True, tag="delete"):
    client_id: str
    id: str


class JoinFrame(msgspec.Struct, frozen=True, tag="join"):
    room: str


class LeaveFrame(msgspec.Struct, frozen=True, tag="leave"):
    room: str


class OpenFrame(msgspec.Struct, frozen=True, tag="open"):
    """Start a private conversation with a user."""

    user: str


class ReadFrame(msgspec.Struct, frozen=True, tag="read"):
    """Everything up to this position has been seen."""

    conversation: str
    position: int


class TypingFrame(msgspec.Struct, frozen=True, tag="typing"):
    conversation: str


class PingFrame(msgspec.Struct, frozen=True, tag="ping"):
    """Answered with `pong`: scripts in a browser do not see the pings of the protocol."""


class DrawerFrame(msgspec.Struct, frozen=True, tag="drawer"):
    """Whether the browser shows the AMQP traffic."""

    open: bool


ClientFrame: TypeAlias = (
    ResumeFrame
    | SendFrame
    | EditFrame
    | DeleteFrame
    | JoinFrame
    | LeaveFrame
    | OpenFrame
    | ReadFrame
    | TypingFrame
    | PingFrame
    | DrawerFrame
)
_DECODER: Final[msgspec.json.Decoder[ClientFrame]] = msgspec.json.Decoder(ClientFrame)
_ENCODER: Final = msgspec.json.Encoder()


def decode_client_frame(text: str | bytes) -> ClientFrame:
    """Return what a browser has sent. Raises `RefusedError` that names what is wrong."""
    try:
        frame = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise RefusedError("frame", f"invalid frame: {error!s:.200}") from error
    if isinstance(frame, ResumeFrame) and len(frame.positions or ()) > POSITIONS_MAX_COUNT:
        raise RefusedError("positions", f"more than {POSITIONS_MAX_COUNT} positions")
    return frame


def encode_frame(content: Mapping[str, Any]) -> bytes:
    """Return a WebSocket frame of the server with a JSON object."""
    payload = _ENCODER.encode(content)
    return frame_header(len(payload)) + payload


def frame_header(size_bytes: int) -> bytes:
    if size_bytes <= SHORT_MAX_BYTES:
        return bytes((FINAL_TEXT_CODE, size_bytes))
    if size_bytes <= MEDIUM_MAX_BYTES:
        return struct.pack(">BBH", FINAL_TEXT_CODE, LENGTH_U16_CODE, size_bytes)
    return struct.pack(">BBQ", FINAL_TEXT_CODE, LENGTH_U64_CODE, size_bytes)


def show_message(message: StoredMessage, user_id: str) -> dict[str, Any]:
    """Return a message as the browser of a user gets it."""
    shown: dict[str, Any] = {
        "id": message.id,
        "conversation": to_wire(message.conversation, user_id),
        "position": message.position,
        "author": message.author,
        "text": message.text,
        "time": message.time_ms,
        "thread": message.thread,
        "quote": message.quote,
        "edited": message.edited_ms,
        "deleted": message.deleted,
    }
    if message.author.id == user_id:
        shown["client_id"] = message.client_id
    return shown
