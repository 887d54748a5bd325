"""Split a selector into tokens. Keywords are case-insensitive, names are case-sensitive."""

import re
from enum import Enum
from typing import Final

import msgspec

from .errors import SelectorError

MAX_SELECTOR_BYTES: Final = 2_048

KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE")
)


class TokenType(Enum):
    """The type of a token."""

    KEYWORD = "word"
    NAME = "name"
    QUOTED_NAME = "quoted name"
    NUMBER = "number"
    TEXT = "text"
    SYMBOL = "symbol"
    END = "end"


class Token(msgspec.Struct, frozen=True):
    type: TokenType
    value: str
    """A keyword in upper case, a name or text without its quotes, anything else as written."""
    offset: int

    def __str__(self) -> str:
        match self.type:
            case TokenType.END:
                return "the end"
            case TokenType.TEXT:
                return "a text"
            case TokenType.QUOTED_NAME:
                return f'"{self.value}"'
            case _:
                return self.value


# Only `.` begins two alternatives (.5 and the symbol), so the time of a match is linear in the text.
_TOKEN_PATTERN: Final = re.compile(
    r"""(?P<space> [\ \t\r\n]+)
      | (?P<name> [A-Za-z_][A-Za-z0-9_]*)
      | (?P<number> (?: [0-9]+ (?: \.[0-9]* )? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )?)
      | (?P<text> '[^']*' (?: '[^']*' )*)
      | (?P<quoted> "[^"]*")
      | (?P<symbol> <> | <= | >= | != | [-+*=<>(),.] )""",
    re.VERBOSE,
)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text; the last one is END. Raises `SelectorError`."""
    _check_size(text)
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN_PATTERN.match(text, at)
        if match is None:
            raise SelectorError(text, at, _explain_unexpected_character(text[at]))
        if match.lastgroup != "space":
            found.append(_make_token(text, at, match.lastgroup, match[0]))
        at = match.end()
    found.append(Token(TokenType.END, "", len(text)))
    return found


def _make_token(text: str, at: int, group: str | None, value: str) -> Token:
    match group:
        case "name":
            if value.upper() in KEYWORDS:
                return Token(TokenType.KEYWORD, value.upper(), at)
            return Token(TokenType.NAME, value, at)
        case "number":
            end = at + len(value)
            if text[end : end + 1].isalnum() or text[end : end + 1] in ("_", "."):
                raise SelectorError(text, end, "expected a space or an operator behind the number")
            return Token(TokenType.NUMBER, value, at)
        case "text":
            return Token(TokenType.TEXT, value[1:-1].replace("''", "'"), at)
        case "quoted":
            if len(value) == 2:
                raise SelectorError(text, at, "expected a name between the quotes")
            return Token(TokenType.QUOTED_NAME, value[1:-1], at)
        case _:
            return Token(TokenType.SYMBOL, value, at)


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise SelectorError(text, error.start, "surrogates are not valid Unicode text") from None
    if size > MAX_SELECTOR_BYTES:
        reason = f"selector too long: {size:,} bytes, maximum {MAX_SELECTOR_BYTES:,}"
        raise SelectorError(
            text, len(text.encode()[:MAX_SELECTOR_BYTES].decode(errors="ignore")), reason
        )


def _explain_unexpected_character(character: str) -> str:
    if character == "'":
        return "unterminated text: expected another '"
    if character == '"':
        return 'unterminated name: expected another "'
    if character == "/":
        return "division is not supported; multiply instead"
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"unexpected character {shown}"
