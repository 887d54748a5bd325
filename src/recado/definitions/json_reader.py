"""Reads a JSON document in bounded steps, for a running broker.

Decoding 20 MB in one call takes 0.12 s, and skipping over the values, without building objects, still 0.025 s; a
thread does not help, because both hold the interpreter lock. So the document is decoded in windows of 64 KiB: the
entries of its lists are found one by one, in 1 ms per window, and decoded later, one by one as well.

The decoder of the standard library finds where an entry ends, because that of msgspec cannot decode a value that
other text follows. Only msgspec then decodes the entry, as in all other parts of recado.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, Final

import msgspec

from recado.broker.steps import Steps

from .document import DefinitionsError

WINDOW_BYTES: Final = 64 * 1024
VALUE_CHARACTERS_MAX: Final = 256 * 1024
"""Of an entry, as of the body of a request for a single object; 5 ms to find its end."""
NUMBER_TAIL_MIN_COUNT: Final = 3  # characters after a number that show that it has ended
WHITESPACE_WINDOWS_MAX_COUNT: Final = 4  # skipped in one step
ENTRIES_MAX_COUNT: Final = 1_000_000
"""A body of 20 MB, the limit over HTTP, has fewer entries if they are valid. Each takes 100 bytes of memory."""
CHARACTERS_PER_UNIT: Final = 256
YIELD_UNITS_MIN: Final = 64  # the cost after which a step ends

_scan_value = json.JSONDecoder().raw_decode
_skip_whitespace = re.compile(r"[ \t\n\r]*").match


def read_json(content: bytes) -> Steps[dict[str, Any]]:
    """Return a JSON object whose lists have undecoded entries (`msgspec.Raw`).

    An empty text is an empty object. Raises `DefinitionsError`.
    """
    return _JsonReader(content).read()


class _JsonReader:
    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        self._next_byte = 0  # of the content, to decode
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text = ""  # the window
        self._at = 0  # in the window
        self._window_start = 0  # in characters, for error messages
        self._uncharged = 0  # characters whose cost was not yielded yet
        self._entries_left = ENTRIES_MAX_COUNT

    def read(self) -> Steps[dict[str, Any]]:
        document: dict[str, Any] = {}
        if not self._peek():
            return document
        if self._peek() != "{":
            raise DefinitionsError("definitions must be an object with lists such as queues")
        self._take("{")
        while self._peek() != "}":
            if document:
                self._take(",")
            if self._peek() != '"':
                raise self._error("expected the name of a key")
            key = self._decode_json((yield from self._read_value()))
            self._take(":")
            if self._peek() == "[":
                document[key] = yield from self._read_list()
            else:
                document[key] = self._decode_json((yield from self._read_value()))
        self._take("}")
        if self._peek():
            raise self._error("expected the end")
        return document

    def _read_list(self) -> Steps[list[msgspec.Raw]]:
        entries: list[msgspec.Raw] = []
        self._take("[")
        while self._peek() != "]":
            if entries:
                self._take(",")
                self._peek()
            if not self._entries_left:
                raise DefinitionsError(f"more than {ENTRIES_MAX_COUNT} entries")
            self._entries_left -= 1
            entries.append(msgspec.Raw((yield from self._read_value()).encode()))
        self._take("]")
        return entries

    def _read_value(self) -> Steps[str]:
        """Return the text of the value that begins here."""
        start = self._window_start + self._at
        while True:
            end, problem = self._find_end()
            length = (len(self._text) if end is None else end) - self._at
            self._uncharged += length
            if self._uncharged >= YIELD_UNITS_MIN * CHARACTERS_PER_UNIT:
                yield self._uncharged // CHARACTERS_PER_UNIT
                self._uncharged = 0
            # A number near the end of the window may go on: of `1e+5`, the window may have `1e+`.
            is_complete = end is not None and len(self._text) - end >= NUMBER_TAIL_MIN_COUNT
            has_more = self._next_byte < len(self._content)
            if length > VALUE_CHARACTERS_MAX and (end is not None or has_more):
                raise DefinitionsError(
                    f"the value at character {start} is longer than {VALUE_CHARACTERS_MAX} characters"
                )
            if is_complete or not has_more:
                break
            self._fill(max(length, WINDOW_BYTES))
        if end is None:
            raise self._error(problem)
        value, self._at = self._text[self._at : end], end
        return value

    def _find_end(self) -> tuple[int | None, str]:
        """Return where the value ends that begins here; None and the reason if it is invalid or incomplete."""
        try:
            return _scan_value(self._text, self._at)[1], ""
        except json.JSONDecodeError as error:
            return None, error.msg
        except (ValueError, RecursionError) as error:
            return None, str(error)  # a number of thousands of digits, or deep nesting

    def _decode_json(self, text: str) -> Any:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DefinitionsError(f"not valid JSON: {error}") from None

    def _peek(self) -> str:
        """Skip whitespace; return the character after it, or an empty string at the end."""
        for _ in range(WHITESPACE_WINDOWS_MAX_COUNT):
            found = _skip_whitespace(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._next_byte >= len(self._content):
                return ""
            self._fill(WINDOW_BYTES)
        raise self._error("too much whitespace")

    def _take(self, character: str) -> None:
        if self._peek() != character:
            raise self._error(f"expected {character!r}")
        self._at += 1

    def _fill(self, size: int) -> None:
        """Drop the text that was read, and decode more."""
        end = min(self._next_byte + size, len(self._content))
        try:
            more = self._decode(self._content[self._next_byte : end], end == len(self._content))
        except UnicodeDecodeError as error:
            raise DefinitionsError(f"not valid JSON: {error}") from None
        self._window_start += self._at
        self._text, self._at, self._next_byte = self._text[self._at :] + more, 0, end

    def _error(self, problem: str) -> DefinitionsError:
        return DefinitionsError(
            f"not valid JSON: {problem} at character {self._window_start + self._at}"
        )
