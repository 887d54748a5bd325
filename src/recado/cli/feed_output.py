"""Format messages of feeds as lines of text or JSON, and members of feeds as lines of text."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec

from recado.cli.terminal import escape_unprintable

if TYPE_CHECKING:
    from recado.feeds.message import Message
    from recado.feeds.observer import ObservedMember


def format_message(message: Message, *, as_json: bool, offset: int | None = None) -> str:
    if as_json:
        return msgspec.json.encode(to_fields(message, offset), enc_hook=str).decode() + "\n"
    certainty = message.certainty.name.lower()
    body = escape_unprintable(message.body.decode("utf-8", "backslashreplace"))
    offset_column = "" if offset is None else f"{offset:>10} "
    return f"{offset_column}{format_time(message)} {certainty:9} {escape_unprintable(message.key) or '-'} {body}\n"


def format_time(message: Message) -> str:
    """Format the time of a message, which may be out of range: publishers can send any number."""
    try:
        return message.time.isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{message.timestamp} µs"


def to_fields(message: Message, offset: int | None) -> dict[str, object]:
    fields: dict[str, object] = {} if offset is None else {"offset": offset}
    fields |= {
        "feed": message.feed,
        "publisher": message.publisher.hex(),
        "sequence": message.sequence,
        "view": message.view.number,
        "timestamp": message.timestamp,
        "key": message.key,
        "message_id": message.message_id,
        "headers": dict(message.headers),
        "certainty": message.certainty.name.lower(),
    }
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(message.body).decode()
    return fields


def format_member(member: ObservedMember) -> str:
    role = member.role.name.lower()
    details = f"view {member.view}" if member.name else f"{member.last} messages"
    return f"{role:10} {member.name or '-':24} {member.incarnation}  {details}"
