"""The names of conversations.

A browser sees `room:NAME`, and `user:ID` for the private conversation with a user. The server has one key for both
sides of a private conversation: `private:ID:ID`, the ids in order.
"""

from __future__ import annotations

from typing import Final

from .names import PRIVATE_EXCHANGE, RefusedError, check_room_name

ROOM_PREFIX: Final = "room:"
USER_PREFIX: Final = "user:"
PRIVATE_PREFIX: Final = "private:"
ROOM_KEY_PREFIX: Final = "rooms."
"""Of the feed's keys of public messages; those of private messages are `private-messages`."""


def room_key(room: str) -> str:
    return ROOM_PREFIX + room


def private_key(one: str, other: str) -> str:
    first, second = sorted((one, other))
    return f"{PRIVATE_PREFIX}{first}:{second}"


def room_of(key: str) -> str | None:
    """Return the name of the room; None for a private conversation."""
    return key.removeprefix(ROOM_PREFIX) if key.startswith(ROOM_PREFIX) else None


def participants(key: str) -> tuple[str, str]:
    """Return the ids of the two users of a private conversation, which may be the same."""
    _, first, second = key.split(":", 2)
    return first, second


def partner(key: str, user_id: str) -> str:
    """Return the id of the other user of a private conversation."""
    first, second = participants(key)
    return second if first == user_id else first


def to_wire(key: str, user_id: str) -> str:
    """Return the name of a conversation for the browser of a user."""
    return key if key.startswith(ROOM_PREFIX) else USER_PREFIX + partner(key, user_id)


def from_wire(conversation: str, user_id: str) -> str:
    """Return the key of a conversation that a browser has named. Raises `RefusedError`."""
    if conversation.startswith(ROOM_PREFIX):
        return ROOM_PREFIX + check_room_name(conversation.removeprefix(ROOM_PREFIX))
    if conversation.startswith(USER_PREFIX):
        other = conversation.removeprefix(USER_PREFIX)
        if is_id(other):
            return private_key(user_id, other)
    raise RefusedError("conversation", "a conversation is room:NAME or user:ID")


def feed_key(key: str) -> str:
    """Return the key under which messages of a conversation are in the history."""
    room = room_of(key)
    return PRIVATE_EXCHANGE if room is None else ROOM_KEY_PREFIX + room


def is_id(text: str) -> bool:
    """Whether a text is an id of a user or message: 32 hexadecimal digits."""
    return len(text) == 32 and all(each in "0123456789abcdef" for each in text)
