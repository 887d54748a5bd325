"""Text for terminals: control characters, colours, and the width of the window.

Names and payloads come from the network, so control characters other than tabs are escaped before they are
printed.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Final, TextIO

WIDTH_DEFAULT_COUNT: Final = 100
"""Columns, if the width of the window is unknown."""


class Colour(Enum):
    """The colours that output uses, as SGR codes."""

    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


def escape_unprintable(text: str) -> str:
    """Escape line breaks and control characters, except tabs, which separate columns."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\t" else ascii(character)[1:-1]
        for character in text
    )


def is_coloured(stream: TextIO) -> bool:
    """Whether to write colours: to a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: Colour, *, enabled: bool) -> str:
    return f"\x1b[{colour.value}m{text}\x1b[0m" if enabled else text


def width_of_text(text: str) -> int:
    """Return the columns that a printable text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(map(_width_of_character, text))


def cut_text(text: str, width: int) -> str:
    """Return the text, or as much of its beginning as fits together with an ellipsis."""
    if width_of_text(text) <= width:
        return text
    taken = ""
    left = width - 1
    for character in text:
        left -= _width_of_character(character)
        if left < 0:
            break
        taken += character
    return f"{taken}…"


def _width_of_character(character: str) -> int:
    if character.isascii():
        return 1
    from unicodedata import combining, east_asian_width

    if combining(character):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


def width_of(stream: TextIO) -> int:
    """Return the columns of the window; COLUMNS overrides it."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH_DEFAULT_COUNT
    except (OSError, ValueError):
        return WIDTH_DEFAULT_COUNT
