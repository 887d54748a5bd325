"""What users may type: names, rooms and texts, with the reason why something else is refused."""

from __future__ import annotations

import unicodedata
from typing import Final

PRIVATE_EXCHANGE: Final = "private-messages"
FEED_NAME: Final = "chat"
RESERVED_PREFIXES: Final = ("amq.", "feed.", "recado.")
"""Exchanges of the broker, of feeds, and of recado's own records."""

NAME_CHARACTERS_MAX: Final = 40
ROOM_CHARACTERS_MAX: Final = 60
ROOM_MAX_BYTES: Final = 200  # AMQP permits 255, and the key of the feed has a prefix
TEXT_CHARACTERS_MAX: Final = 8_000
SEARCH_CHARACTERS_MAX: Final = 200
CLIENT_ID_CHARACTERS_MAX: Final = 64

_INVISIBLE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
) | frozenset(map(chr, (*range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0))))
"""Letters, marks and symbols that most fonts show as nothing."""
_EMOJI_SELECTOR: Final = "\ufe0f"
_JOINER: Final = "\u200d"
_KEYCAP: Final = "\u20e3"
_KEPT_CONTROLS: Final = frozenset("\n\t")


class RefusedError(Exception):
    """Something that a user asked for is refused; `field` names what to change."""

    def __init__(self, field: str, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason
        self.retry = retry
        """Whether the same request may succeed later."""


def check_user_name(name: str) -> str:
    """Return the name of a user as it is shown: composed, with single spaces, without invisible characters."""
    return _check_label(name, "name", NAME_CHARACTERS_MAX)


def check_room_name(name: str) -> str:
    """Return the name of a room, which is that of its exchange."""
    room = _check_label(name, "room", ROOM_CHARACTERS_MAX)
    size = len(room.encode())
    if size > ROOM_MAX_BYTES:
        raise RefusedError(
            "room", f"the name of a room has at most {ROOM_MAX_BYTES} bytes; this has {size}"
        )
    if room.startswith(RESERVED_PREFIXES) or room == PRIVATE_EXCHANGE:
        raise RefusedError("room", f"'{room}' is reserved for the messaging system: choose another")
    return room


def _check_label(text: str, field: str, characters_max: int) -> str:
    label = unicodedata.normalize("NFC", text).strip()
    if not label:
        raise RefusedError(field, f"the {field} is empty")
    if len(label) > characters_max:
        raise RefusedError(
            field, f"the {field} has {len(label)} characters; at most {characters_max} are possible"
        )
    for index, character in enumerate(label):
        if _is_invisible(character) and not _is_joined(label, index):
            raise RefusedError(field, f"the {field} has the invisible character {character!a}")
    if not any(unicodedata.category(each)[0] in "LNSP" for each in label):
        raise RefusedError(field, f"the {field} has no visible character")
    spaced = "".join(" " if unicodedata.category(each) == "Zs" else each for each in label)
    return " ".join(spaced.split())


def _is_invisible(character: str) -> bool:
    return (
        unicodedata.category(character) in _INVISIBLE_CATEGORIES
        or character in _BLANK
        or character == _EMOJI_SELECTOR
    )


def _is_joined(label: str, index: int) -> bool:
    """Whether an invisible character belongs to an emoji or a conjunct: after a letter it would imitate a name."""
    before, after = label[index - 1 : index], label[index + 1 : index + 2]
    kind = unicodedata.category(before) if before else ""
    if label[index] == _EMOJI_SELECTOR:
        return kind == "So" or after == _KEYCAP
    if label[index] == _JOINER:
        is_followed = after != "" and unicodedata.category(after)[0] in "LS"
        return kind in ("So", "Sk", "Mn", "Mc") and is_followed
    return False


def check_text(text: str) -> str:
    """Return the text of a message. Control characters except tabs and line ends become spaces."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > TEXT_CHARACTERS_MAX:
        raise RefusedError(
            "text",
            f"the text has {len(text):,} characters; at most {TEXT_CHARACTERS_MAX:,} are possible",
        )
    if not text.isprintable():
        text = "".join(
            " "
            if unicodedata.category(each) in ("Cc", "Cs") and each not in _KEPT_CONTROLS
            else each
            for each in text
        )
    if not text.strip():
        raise RefusedError("text", "the text is empty")
    return text.rstrip()


def check_client_id(client_id: str) -> str:
    """Return the id that a browser gave to something it sends, so that it can send it again."""
    if not client_id or len(client_id) > CLIENT_ID_CHARACTERS_MAX or not client_id.isascii():
        raise RefusedError(
            "client_id", f"a client id has 1 to {CLIENT_ID_CHARACTERS_MAX} ASCII characters"
        )
    return client_id
