"""SQL expressions without Spark: their tokens, and whether they can fail on a row.

Only Spark's own analyser understands Spark SQL: it finds syntax errors, unknown functions and columns, and
types. The checks of a pipeline ask it through the port `SqlAnalyser` (`recado.pipeline.steps.analysis`). Without
Java `TokenAnalyser` takes its place, which reads tokens only and knows no types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from .fields import NUMERIC_TYPES, Fields, base_type
from .problems import quote_excerpt

_TOKEN_PATTERN: Final = re.compile(
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
_FAILING_OPERATORS: Final = {
    "/": "try_divide(a, b)", "%": "try_mod(a, b)", "div": "try_divide(a, b)", "mod": "try_mod(a, b)",
    "cast": "try_cast(a AS …)", "::": "try_cast(a AS …)",
}  # fmt: skip
"""And what gives NULL instead."""
_NESTED_BRACKETS_MAX: Final = (
    100  # brackets in brackets: Spark's own parser never comes back from a great many
)
_LOGIC_WORDS: Final = frozenset(
    {"and", "or", "not", "between", "is", "null", "in", "true", "false"}
)
_COMPARISON_SIGNS: Final = frozenset(
    {"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "(", ")", ","}
)


class ExpressionError(ValueError):
    """What is wrong with an expression, and what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class SqlToken(NamedTuple):
    kind: str
    text: str


def tokenize(expression: str) -> list[SqlToken]:
    """Raises BadExpression."""
    found: list[SqlToken] = []
    at = depth = 0
    while at < len(expression):
        match = _TOKEN_PATTERN.match(expression, at)
        if match is None or not match.lastgroup:
            rest = expression[at : at + 20]
            what = "a text is not closed" if rest[0] in "'\"`" else "this is no SQL"
            raise ExpressionError(f"{what} at {rest!r}")
        at = match.end()
        text = match[0]
        if match.lastgroup == "space":
            continue
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if depth > _NESTED_BRACKETS_MAX:
            raise ExpressionError(
                f"brackets are nested more than {_NESTED_BRACKETS_MAX} deep: {quote_excerpt(expression)}"
            )
        if depth < 0:
            raise ExpressionError(
                f"a bracket is closed that was not opened: {quote_excerpt(expression)}"
            )
        found.append(SqlToken(match.lastgroup, text))
    if depth:
        raise ExpressionError(f"a bracket is not closed: {quote_excerpt(expression)}")
    if not found:
        raise ExpressionError("an expression is empty")
    return found


# --- analysis ------------------------------------------------------------------------------------


class UnregisteredNameError(ExpressionError):
    """A function or a table that the Spark session does not know. A step before may register it."""


class Analysis(NamedTuple):
    type: str | None
    """As Spark writes it; None if it is unknown."""
    can_fail: bool
    """Whether a row can make it fail."""


class SqlAnalyser(Protocol):
    """Checks an expression on rows of these fields. All methods raise BadExpression."""

    def analyse_condition(self, sql: str, fields: Fields) -> Analysis: ...

    def analyse_column(self, sql: str, fields: Fields) -> Analysis: ...

    def analyse_aggregate(self, sql: str, fields: Fields, by: Sequence[str]) -> Analysis:
        """An aggregate of rows that are grouped by these fields. One that can fail is refused."""


class TokenAnalyser:
    """Checks tokens and brackets only. Whether an expression on fields of unknown type can fail stays open."""

    def analyse_condition(self, sql: str, fields: Fields) -> Analysis:
        return self.analyse_column(sql, fields)

    def analyse_column(self, sql: str, fields: Fields) -> Analysis:
        is_safe_ = is_safe(sql, fields)
        return Analysis(None, not is_safe_ and None not in fields.types.values())

    def analyse_aggregate(self, sql: str, fields: Fields, by: Sequence[str]) -> Analysis:
        reject_failing_operators(sql)
        return Analysis(None, can_fail=False)


# --- what cannot fail ----------------------------------------------------------------------------


def reject_failing_operators(expression: str) -> None:
    """Raises BadExpression for a division, which may be by 0, or a cast, which may be of what is none.

    For where many rows have one value: no single one of them could be the dead letter.
    """
    for token, after in pairwise([*tokenize(expression), SqlToken("end", "")]):
        is_constant = after.kind == "number" and float(after.text.rstrip("LSYDFB") or 0) != 0
        if (
            token.kind in ("sign", "word")
            and token.text.lower() in _FAILING_OPERATORS
            and not is_constant
        ):
            raise ExpressionError(
                f"{token.text} in {quote_excerpt(expression)} may fail, and the pipeline with it",
                f"{_FAILING_OPERATORS[token.text.lower()]} gives NULL instead",
            )


def is_safe(expression: str, fields: Fields) -> bool:
    """Whether it has a value for every row, whatever is in it: columns and constants of one kind, compared.

    Anything else may fail: ANSI's arithmetic overflows, and casts, spoken or not, meet what they cannot read.
    """
    kinds: set[str | None] = set()
    for token in tokenize(expression):
        match token.kind:
            case "sign" if token.text in _COMPARISON_SIGNS:
                pass
            case "word" if token.text.lower() in _LOGIC_WORDS and token.text not in fields:
                pass
            case "text" | "number" | "word" | "quoted":
                kinds.add(_token_type(token, fields))
            case _:
                return False
    return (
        kinds <= {"number"} or kinds <= {"string"} or kinds <= {"timestamp"} or kinds <= {"boolean"}
    )


def _token_type(token: SqlToken, fields: Fields) -> str | None:
    """`number`, or the type of a constant or a column without its parameters; None for any other name."""
    match token.kind:
        case "text":
            return "string"
        case "number":
            return "number"
        case "quoted":
            kind = base_type(fields.type_of(token.text[1:-1].replace("``", "`")))
        case _:
            kind = base_type(fields.type_of(token.text))
    return "number" if kind in NUMERIC_TYPES else kind
