"""SQL expressions without Spark: their tokens, and whether they can fail on a row.

Only Spark's own analyser understands Spark SQL: it finds syntax errors, unknown functions and columns, and
types. The checks of a pipeline ask it through the port `Analyser` (`recado.pipeline.steps.analysis`). Without
Java `TokenCheck` takes its place, which reads tokens only and knows no types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from .fields import NUMBERS, Fields, plain
from .problems import shown

_TOKEN: Final = re.compile(
    r"""
      (?P<space> \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<text>  (?:\b[rRxX])?'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" )
    | (?P<number> (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[LSYDF]|BD)?\b )
    | (?P<quoted> `(?:[^`]|``)+` )
    | (?P<word>  [^\W\d]\w* )
    | (?P<sign>  -> | => | :: | <=> | <> | != | <= | >= | == | \|\| | [-+*/%=<>(),.\[\]?:&|^~!] )
    """,
    re.VERBOSE | re.DOTALL,
)
_FAILING: Final = {
    "/": "try_divide(a, b)", "%": "try_mod(a, b)", "div": "try_divide(a, b)", "mod": "try_mod(a, b)",
    "cast": "try_cast(a AS …)", "::": "try_cast(a AS …)",
}  # fmt: skip
"""And what gives NULL instead."""
_DEEPEST: Final = 100  # brackets in brackets: Spark's own parser never comes back from a great many
_LOGIC: Final = frozenset({"and", "or", "not", "between", "is", "null", "in", "true", "false"})
_COMPARING: Final = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "(", ")", ","})


class BadExpression(ValueError):
    """What is wrong with an expression, and what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class Token(NamedTuple):
    kind: str
    text: str


def tokens(expression: str) -> list[Token]:
    """Raises BadExpression."""
    found: list[Token] = []
    at = depth = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None or not match.lastgroup:
            rest = expression[at : at + 20]
            what = "a text is not closed" if rest[0] in "'\"`" else "this is no SQL"
            raise BadExpression(f"{what} at {rest!r}")
        at = match.end()
        text = match[0]
        if match.lastgroup == "space":
            continue
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if depth > _DEEPEST:
            raise BadExpression(
                f"brackets are nested more than {_DEEPEST} deep: {shown(expression)}"
            )
        if depth < 0:
            raise BadExpression(f"a bracket is closed that was not opened: {shown(expression)}")
        found.append(Token(match.lastgroup, text))
    if depth:
        raise BadExpression(f"a bracket is not closed: {shown(expression)}")
    if not found:
        raise BadExpression("an expression is empty")
    return found


# --- analysis ------------------------------------------------------------------------------------


class UnregisteredName(BadExpression):
    """A function or a table that the Spark session does not know. A step before may register it."""


class Analysed(NamedTuple):
    type: str | None
    """As Spark writes it; None if it is unknown."""
    can_fail: bool
    """Whether a row can make it fail."""


class Analyser(Protocol):
    """Checks an expression on rows of these fields. All methods raise BadExpression."""

    def condition(self, sql: str, fields: Fields) -> Analysed: ...

    def column(self, sql: str, fields: Fields) -> Analysed: ...

    def measure(self, sql: str, fields: Fields, by: Sequence[str]) -> Analysed:
        """An aggregate of rows that are grouped by these fields. One that can fail is refused."""


class TokenCheck:
    """Checks tokens and brackets only. Whether an expression on fields of unknown type can fail stays open."""

    def condition(self, sql: str, fields: Fields) -> Analysed:
        return self.column(sql, fields)

    def column(self, sql: str, fields: Fields) -> Analysed:
        is_safe_ = is_safe(sql, fields)
        return Analysed(None, not is_safe_ and None not in fields.types.values())

    def measure(self, sql: str, fields: Fields, by: Sequence[str]) -> Analysed:
        refuse_failing(sql)
        return Analysed(None, can_fail=False)


# --- what cannot fail ----------------------------------------------------------------------------


def refuse_failing(expression: str) -> None:
    """Raises BadExpression for a division, which may be by 0, or a cast, which may be of what is none.

    For where many rows have one value: no single one of them could be the dead letter.
    """
    for token, after in pairwise([*tokens(expression), Token("end", "")]):
        is_constant = after.kind == "number" and float(after.text.rstrip("LSYDFB") or 0) != 0
        if token.kind in ("sign", "word") and token.text.lower() in _FAILING and not is_constant:
            raise BadExpression(
                f"{token.text} in {shown(expression)} may fail, and the pipeline with it",
                f"{_FAILING[token.text.lower()]} gives NULL instead",
            )


def is_safe(expression: str, fields: Fields) -> bool:
    """Whether it has a value for every row, whatever is in it: columns and constants of one kind, compared.

    Anything else may fail: ANSI's arithmetic overflows, and casts, spoken or not, meet what they cannot read.
    """
    kinds: set[str | None] = set()
    for token in tokens(expression):
        match token.kind:
            case "sign" if token.text in _COMPARING:
                pass
            case "word" if token.text.lower() in _LOGIC and token.text not in fields:
                pass
            case "text" | "number" | "word" | "quoted":
                kinds.add(_kind_of(token, fields))
            case _:
                return False
    return (
        kinds <= {"number"} or kinds <= {"string"} or kinds <= {"timestamp"} or kinds <= {"boolean"}
    )


def _kind_of(token: Token, fields: Fields) -> str | None:
    """`number`, or the type of a constant or a column without its parameters; None for any other name."""
    match token.kind:
        case "text":
            return "string"
        case "number":
            return "number"
        case "quoted":
            kind = plain(fields.type_of(token.text[1:-1].replace("``", "`")))
        case _:
            kind = plain(fields.type_of(token.text))
    return "number" if kind in NUMBERS else kind
