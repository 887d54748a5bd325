"""Text to tokens. Words of the language are known in any case, names only as they are written."""

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
    KEYWORD = "word"
    NAME = "name"
    QUOTED_NAME = "quoted name"
    NUMBER = "number"
    TEXT = "text"
    SYMBOL = "sign"
    END = "end"


class Token(msgspec.Struct, frozen=True):
    type: TokenType
    value: str
    """A word in capitals, a name or a text without its quotes, and all else as it stands."""
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


# Each alternative begins with characters that no other one begins with, and never has to go back.
_TOKEN_PATTERN: Final = re.compile(
    r"""(?P<space> [\ \t\r\n]+)
      | (?P<name> [A-Za-z_][A-Za-z0-9_]*)
      | (?P<number> (?: [0-9]+ (?: \.[0-9]* )? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )?)
      | (?P<text> '[^']*' (?: '[^']*' )*)
      | (?P<quoted> "[^"]*")
      | (?P<sign> <> | <= | >= | != | [-+*=<>(),.] )""",
    re.VERBOSE,
)


def tokenize(text: str) -> list[Token]:
    """All tokens of a text, with the end as the last."""
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
                raise SelectorError(
                    text, end, "a number ends before this: expected a space or a sign"
                )
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
        raise SelectorError(text, error.start, "this is no character of Unicode") from None
    if size > MAX_SELECTOR_BYTES:
        reason = f"a selector has at most {MAX_SELECTOR_BYTES:,} bytes, this one {size:,}"
        raise SelectorError(
            text, len(text.encode()[:MAX_SELECTOR_BYTES].decode(errors="ignore")), reason
        )


def _explain_unexpected_character(character: str) -> str:
    if character == "'":
        return "this text has no end: expected another '"
    if character == '"':
        return 'this name has no end: expected another "'
    if character == "/":
        return "there is no division; multiply instead"
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"no selector has a {shown} outside of quotes"
