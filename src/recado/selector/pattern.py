"""Patterns of LIKE: `%` matches any text, `_` one character; the escape character makes the next one literal.

Clients choose both patterns and texts, so no pattern may make a match slow. A backtracking regular expression can
take exponential time, and an automaton takes states × length, which is too much for a `%` followed by hundreds
of `_`.

A pattern is split at `%` into parts. The first part must match at the start of the text, the last one at its end.
The others are searched from left to right; the first match of each is as good as any later one, because it leaves
the most text for the parts behind it. A part with `_` is searched at all positions at once, with one bitmap (a
Python integer) per distinct character: bit p is set if the text has the character at position p. Shifted right
by the character's offset in the part, and combined by `&`, the bitmaps leave the positions at which all
characters match. For a text of 1 MiB this takes 5 ms per distinct character; a loop over the text took a
second.
"""

from codecs import utf_32_be_encode
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

ANY_CHARACTER: Final = None  # `_` in a part

PatternPart = tuple[str | None, ...]


class PatternError(ValueError):
    """An invalid pattern."""


class LikePattern(msgspec.Struct, frozen=True):
    """The parts of a pattern between its `%`, each a tuple of texts and `ANY_CHARACTER`."""

    parts: tuple[PatternPart, ...]

    def to_text(self, escape: str) -> str:
        """Return the pattern as text, with this escape character."""
        special = ("%", "_", escape)
        texts = (
            "".join(
                "_" if each is ANY_CHARACTER else "".join(escape * (c in special) + c for c in each)
                for each in part
            )
            for part in self.parts
        )
        return "%".join(texts)


def parse_pattern(text: str, escape: str | None) -> LikePattern:
    """Parse a pattern of LIKE; raises `PatternError`."""
    parts: list[list[str | None]] = [[]]
    characters = iter(text)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following not in ("%", "_", escape):
                raise PatternError(
                    f"expected %, _ or {escape} behind the escape character {escape}"
                )
            _append_character(parts[-1], following)
        elif character == "%":
            parts.append([])
        elif character == "_":
            parts[-1].append(ANY_CHARACTER)
        else:
            _append_character(parts[-1], character)
    inner = [part for part in parts[1:-1] if part]  # %% is %
    merged = [parts[0], *inner, parts[-1]] if len(parts) > 1 else parts
    return LikePattern(tuple(map(tuple, merged)))


def _append_character(part: list[str | None], character: str) -> None:
    if part and part[-1] is not ANY_CHARACTER:
        part[-1] = f"{part[-1]}{character}"
    else:
        part.append(character)


def compile_matcher(pattern: LikePattern) -> Callable[[str], bool]:
    """Return a function that tells whether a text matches. `predicate` uses it for patterns that are not simply an
    equal text, a prefix, a suffix or a substring."""
    first, *rest = pattern.parts
    if not rest:
        only = _AnchoredPart(first)
        return lambda text: len(text) == only.size and only.matches_at(text, 0)
    start, end = _AnchoredPart(first), _AnchoredPart(rest.pop())
    inner = [_FloatingPart(part) for part in rest]

    def matches(text: str) -> bool:
        last = len(text) - end.size
        if start.size > last or not (start.matches_at(text, 0) and end.matches_at(text, last)):
            return False
        at = start.size
        bitmaps = _CharacterBitmaps(text)
        for part in inner:
            at = part.find_end(bitmaps, at, last)
            if at < 0:
                return False
        return True

    return matches


class _AnchoredPart:
    """A part that must match at a given position."""

    def __init__(self, part: PatternPart) -> None:
        self.texts: list[tuple[int, str]] = []
        self.size = 0
        for each in part:
            if each is ANY_CHARACTER:
                self.size += 1
            else:
                self.texts.append((self.size, each))
                self.size += len(each)

    def matches_at(self, text: str, at: int) -> bool:
        """Return whether the part matches at `at`; the text must be long enough."""
        return all(text.startswith(each, at + offset) for offset, each in self.texts)


class _CharacterBitmaps:
    """The positions of the characters of a text, as bitmaps: bit p stands for position p."""

    __slots__ = ("_bitmaps", "_byte_planes", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._bitmaps: dict[str, int] = {}
        self._byte_planes: tuple[bytes, ...] = ()

    def bitmap_of(self, character: str) -> int:
        """Return the bitmap of the positions of a character."""
        if character not in self._bitmaps:
            self._bitmaps[character] = self._build_bitmap(character)
        return self._bitmaps[character]

    def _build_bitmap(self, character: str) -> int:
        """Build the bitmap by `int(digits, 2)`, from text that `bytes.translate` maps to the digits 0 and 1.

        The text is reversed, because the last digit is bit 0. A text that is not ASCII is encoded as UTF-32 and
        split into planes, the lowest byte of every character, the second and the third; a character matches
        where all three of its bytes do.
        """
        if self.text.isascii():
            if not character.isascii():
                return 0
            self._byte_planes = self._byte_planes or (self.text.encode()[::-1],)
        elif not self._byte_planes:
            # Not text.encode("utf-32-be"): the first lookup of a codec by name imports a module, which is slow.
            wide = utf_32_be_encode(self.text, "surrogatepass")[0][::-1]
            self._byte_planes = (wide[0::4], wide[1::4], wide[2::4])
        bitmap = -1
        for index, plane in enumerate(self._byte_planes):
            table = _make_translation_table(ord(character) >> 8 * index & 0xFF)
            bitmap &= int(plane.translate(table), 2)
        return bitmap


@lru_cache(256)
def _make_translation_table(byte: int) -> bytes:
    """Return a table for `bytes.translate` that maps this byte to "1" and all others to "0"."""
    return b"0" * byte + b"1" + b"0" * (255 - byte)


class _FloatingPart:
    """A part between two `%`, searched for its first match."""

    def __init__(self, part: PatternPart) -> None:
        texts = [index for index, each in enumerate(part) if each is not ANY_CHARACTER]
        low, high = (texts[0], texts[-1] + 1) if texts else (len(part), len(part))
        # Wildcards at its ends match any character; they only need enough text around the core.
        self._leading_wildcards, self._trailing_wildcards = low, len(part) - high
        core = _AnchoredPart(part[low:high])
        self._size = core.size
        self._first_text = core.texts[0][1] if texts else ""
        self._is_single_text = len(core.texts) <= 1
        self._characters = [
            (offset + i, character)
            for offset, each in core.texts
            for i, character in enumerate(each)
        ]

    def find_end(self, bitmaps: _CharacterBitmaps, at: int, end: int) -> int:
        """Return the end of the first match in text[at:end], or -1."""
        at += self._leading_wildcards
        end -= self._trailing_wildcards
        if at > end:
            return -1
        start = bitmaps.text.find(self._first_text, at, end)
        if start >= 0 and not self._is_single_text:
            start = self._find_fit(bitmaps, start, end)
        return start + self._size + self._trailing_wildcards if start >= 0 else -1

    def _find_fit(self, bitmaps: _CharacterBitmaps, at: int, end: int) -> int:
        """Return the first position from `at` on where all characters match, or -1."""
        candidate_count = end - at - self._size + 1
        candidates = (1 << candidate_count) - 1 if candidate_count > 0 else 0
        for offset, character in self._characters:
            if not candidates:
                return -1
            candidates &= bitmaps.bitmap_of(character) >> (at + offset)
        return at + (candidates & -candidates).bit_length() - 1 if candidates else -1
