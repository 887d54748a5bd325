"""SQL expressions without Spark: their tokens, and whether they can fail on a row.

Only Spark's analyser finds every error in Spark SQL: invalid syntax, unknown functions and columns, wrong types.
The checks of a pipeline use it through the protocol `SqlAnalyser`, which `SparkAnalyser` of
`recado.pipeline.steps.analysis` implements. Without Java they use `TokenAnalyser`, which finds invalid tokens
and unmatched brackets, and does not infer the type of an expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from ..errors import PipelineError
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
"""Operators that can fail, and the alternative that returns NULL instead."""
_NESTED_BRACKETS_MAX: Final = 100  # Spark's parser hangs on deeply nested brackets
_LOGIC_WORDS: Final = frozenset(
    {"and", "or", "not", "between", "is", "null", "in", "true", "false"}
)
_COMPARISON_SIGNS: Final = frozenset(
    {"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "(", ")", ","}
)


class ExpressionError(PipelineError, ValueError):
    """An expression is invalid; `hint` says what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class SqlToken(NamedTuple):
    """A token of SQL: its kind (`text`, `number`, `quoted`, `word`, `sign`) and its text."""

    kind: str
    text: str


def tokenize(expression: str) -> list[SqlToken]:
    """Return the tokens of an expression without spaces and comments. Raises ExpressionError."""
    found: list[SqlToken] = []
    at = depth = 0
    while at < len(expression):
        match = _TOKEN_PATTERN.match(expression, at)
        if match is None or not match.lastgroup:
            rest = expression[at : at + 20]
            what = "unterminated string" if rest[0] in "'\"`" else "invalid SQL"
            raise ExpressionError(f"{what} at {rest!r}")
        at = match.end()
        text = match[0]
        if match.lastgroup == "space":
            continue
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if depth > _NESTED_BRACKETS_MAX:
            raise ExpressionError(
                f"more than {_NESTED_BRACKETS_MAX} nested brackets: {quote_excerpt(expression)}"
            )
        if depth < 0:
            raise ExpressionError(f"unmatched closing bracket: {quote_excerpt(expression)}")
        found.append(SqlToken(match.lastgroup, text))
    if depth:
        raise ExpressionError(f"unclosed bracket: {quote_excerpt(expression)}")
    if not found:
        raise ExpressionError("empty expression")
    return found


# --- analysis ------------------------------------------------------------------------------------


class UnregisteredNameError(ExpressionError):
    """The Spark session does not know a function or table. An earlier step of the pipeline may register it."""


class Analysis(NamedTuple):
    """The result of analysing an expression."""

    type: str | None
    """Spark's name of the type; None if it is unknown."""
    can_fail: bool
    """Whether a row can make the expression fail."""


class SqlAnalyser(Protocol):
    """Analyses SQL expressions on rows with given fields. All methods raise ExpressionError."""

    def analyse_condition(self, sql: str, fields: Fields) -> Analysis: ...

    def analyse_column(self, sql: str, fields: Fields) -> Analysis: ...

    def analyse_aggregate(self, sql: str, fields: Fields, by: Sequence[str]) -> Analysis:
        """Analyse an aggregate of rows grouped by these fields. An aggregate that can fail is rejected."""


class TokenAnalyser:
    """Checks tokens and brackets, and rejects aggregates with operators that can fail.

    A condition or column can fail unless `is_safe` returns True. That needs the types of all fields: if one of
    them is unknown, `can_fail` is always False.
    """

    def analyse_condition(self, sql: str, fields: Fields) -> Analysis:
        return self.analyse_column(sql, fields)

    def analyse_column(self, sql: str, fields: Fields) -> Analysis:
        is_safe_ = is_safe(sql, fields)
        return Analysis(None, not is_safe_ and None not in fields.types.values())

    def analyse_aggregate(self, sql: str, fields: Fields, by: Sequence[str]) -> Analysis:
        reject_failing_operators(sql)
        return Analysis(None, can_fail=False)


# --- expressions that cannot fail ----------------------------------------------------------------


def reject_failing_operators(expression: str) -> None:
    """Raise ExpressionError for a division (possibly by 0) or a cast (possibly of an invalid value).

    For aggregates: many rows make one value, so no single row could become the dead letter.
    """
    for token, after in pairwise([*tokenize(expression), SqlToken("end", "")]):
        has_constant_divisor = (
            after.kind == "number" and float(after.text.rstrip("LSYDFB") or 0) != 0
        )
        if (
            token.kind in ("sign", "word")
            and token.text.lower() in _FAILING_OPERATORS
            and not has_constant_divisor
        ):
            raise ExpressionError(
                f"{token.text} in {quote_excerpt(expression)} can fail and stop the pipeline",
                f"{_FAILING_OPERATORS[token.text.lower()]} returns NULL instead",
            )


def is_safe(expression: str, fields: Fields) -> bool:
    """Whether an expression has a value for every row: it only compares columns and constants of one type.

    Everything else may fail: in ANSI mode arithmetic overflows, and explicit or implicit casts meet invalid
    values.
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
    """Return `number` for a numeric constant or column, otherwise its type without parameters.

    None for a word that is not a column, and for a column of unknown type.
    """
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
