"""Expressions of Spark SQL, as far as they can be understood without Spark: names, kinds, what cannot fail.

Only Spark reads all of SQL. Here is just enough to tell a name that is no column before Spark has started: an
expression is taken apart into words, and a word that is neither called, nor quoted, nor of the language, nor
bound by a lambda must be a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from .fields import NUMBERS, WHOLE, Fields, members, plain
from .problems import nearest, shown

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
_WORDS: Final = frozenset(
    """
    all and any array as asc at between bigint binary boolean both by byte case cast collate cross cube current
    current_catalog current_database current_date current_time current_timestamp current_user date day dayofweek
    days dec decimal desc distinct div double else end escape except exists extract false filter first float
    following for from from_time group hour hours ilike in int integer interval is last leading like limit
    localtimestamp long map microsecond microseconds millisecond milliseconds minute minutes mod
    month months nanosecond natural not null nulls numeric of on or order over overlay partition placing
    position preceding quarter range real regexp respect ignore rlike row rows second seconds select
    session_user short similar smallint some string struct substring table then time timestamp timestamp_ltz
    timestamp_ntz timestampadd timestampdiff tinyint to trailing trim true try_cast unbounded unknown user using
    variant void
    week weeks when where with within xor year years zone
    """.split()  # noqa: SIM905  # a list of so many words is a page
)
_RESULTS: Final = {
    "bigint": """count count_if approx_count_distinct unix_micros unix_millis unix_seconds xxhash64 rank
                 row_number""",
    "double": """avg mean stddev stddev_samp stddev_pop variance var_samp var_pop sqrt exp ln log log2 log10 pow
                 power corr covar_samp covar_pop percentile sin cos tan atan2 rand skewness kurtosis""",
    "string": """upper lower trim ltrim rtrim substring substr date_format to_json regexp_extract regexp_replace
                 md5 sha1 sha2 hex base64 uuid string decode initcap split_part lpad rpad concat_ws""",
    "timestamp": """to_timestamp try_to_timestamp timestamp_micros timestamp_millis timestamp_seconds
                    current_timestamp now date_trunc timestamp""",
    "date": "to_date current_date date date_add date_sub last_day",
    "int": "length size char_length octet_length year month day hour minute second dayofweek datediff int",
    "boolean": """isnull isnotnull like rlike contains startswith endswith bool_and bool_or every some boolean
                  exists""",
    "binary": "unhex unbase64 encode binary to_binary",
}  # fmt: skip
_TYPE_OF_CALL: Final = {name: kind for kind, names in _RESULTS.items() for name in names.split()}
_AS_FIRST: Final = frozenset(
    "min max first last any_value min_by max_by coalesce nvl ifnull nullif abs greatest least lag lead".split()  # noqa: SIM905
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


class Name(NamedTuple):
    """A column, and the way from it into a struct: `properties.type`."""

    column: str
    path: tuple[str, ...] = ()


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


def names(expression: str) -> list[Name]:
    """The columns that it looks at. Raises BadExpression."""
    all_tokens = tokens(expression)
    bound = set(_bound(all_tokens))
    return [name for name in _names(all_tokens) if name.column.lower() not in bound]


def _bound(all_tokens: list[Token]) -> Iterator[str]:
    """The parameters of lambdas: `x -> …`, `(x, y) -> …`."""
    for at, token in enumerate(all_tokens):
        if token.text != "->" or not at:
            continue
        if all_tokens[at - 1].text != ")":
            yield _unquoted(all_tokens[at - 1]).lower()
            continue
        back = at - 2
        while back >= 0 and all_tokens[back].text != "(":
            yield _unquoted(all_tokens[back]).lower()
            back -= 1


def _names(all_tokens: list[Token]) -> Iterator[Name]:
    at = 0
    while at < len(all_tokens):
        token = all_tokens[at]
        after = all_tokens[at + 1].text if at + 1 < len(all_tokens) else ""
        is_called = token.kind == "word" and after in ("(", "=>")
        is_name = token.kind == "quoted" or (
            token.kind == "word" and token.text.lower() not in _WORDS and not is_called
        )
        at += 1
        if not is_name:
            continue
        path = []
        while at + 1 < len(all_tokens) and all_tokens[at].text == ".":
            path.append(_unquoted(all_tokens[at + 1]))
            at += 2
        yield Name(_unquoted(token), tuple(path))


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def refuse_unknown(expression: str, fields: Fields) -> None:
    """Raises BadExpression for the first name that is no column."""
    for name in names(expression):
        if name.column not in fields:
            if fields.open:
                continue
            raise BadExpression(
                f"there is no field {name.column} in {shown(expression)}",
                nearest(name.column, fields.types),
            )
        inside = members(fields.type_of(name.column))
        if name.path and inside is not None and name.path[0].lower() not in _lower(inside):
            raise BadExpression(
                f"{name.column} has no field {name.path[0]} in {shown(expression)}",
                nearest(name.path[0], inside),
            )


def _lower(names_: dict[str, str]) -> set[str]:
    return {name.lower() for name in names_}


# --- kinds ---------------------------------------------------------------------------------------


def type_of(expression: str, fields: Fields) -> str | None:
    """The type of its value, where that is plain to see."""
    all_tokens = tokens(expression)
    if len(all_tokens) == 1:
        return _type_of_token(all_tokens[0], fields)
    first = all_tokens[0]
    if first.kind == "word" and _closes_at_the_end(all_tokens):
        return _type_of_call(first.text.lower(), all_tokens[2:-1], fields)
    numbers = [_type_of_token(each, fields) for each in all_tokens if each.kind != "sign"]
    signs = {each.text for each in all_tokens if each.kind == "sign"}
    kinds = {plain(kind) for kind in numbers}
    if signs <= {"+", "-", "*", "/", "(", ")"} and kinds <= NUMBERS:
        if "double" in kinds or ("/" in signs and "decimal" not in kinds):
            return "double"
        if kinds <= WHOLE:
            return "bigint" if "bigint" in kinds else "int"
    return None


def _type_of_token(token: Token, fields: Fields) -> str | None:
    match token.kind:
        case "text":
            return "string"
        case "number":
            if re.fullmatch(r"\d+", token.text):
                return "int" if int(token.text) < 2**31 else "bigint"
            return "bigint" if token.text.endswith("L") else "double" if "D" in token.text else None
        case "word" | "quoted":
            return fields.type_of(_unquoted(token))
        case _:
            return None


def _closes_at_the_end(all_tokens: list[Token]) -> bool:
    """Whether all of it is one call: `f(…)`, and not `f(…) + g(…)`."""
    if all_tokens[1].text != "(" or all_tokens[-1].text != ")":
        return False
    depth = 0
    for at, token in enumerate(all_tokens[1:], 1):
        depth += (token.text == "(") - (token.text == ")")
        if not depth:
            return at == len(all_tokens) - 1
    return False


def _type_of_call(function: str, inner: list[Token], fields: Fields) -> str | None:
    if function in ("cast", "try_cast"):
        return _type_of_cast(inner)
    if function in _TYPE_OF_CALL:
        return _TYPE_OF_CALL[function]
    first = _first_argument(inner)
    if function in _AS_FIRST:
        return type_of(first, fields) if first else None
    if function == "sum" and first:
        kind = plain(type_of(first, fields))
        return "bigint" if kind in WHOLE else "double" if kind in ("float", "double") else None
    return None


def _type_of_cast(inner: list[Token]) -> str | None:
    from .fields import NoType, type_named

    for at in range(len(inner) - 1, -1, -1):
        if inner[at].text.lower() == "as":
            try:
                return type_named("".join(each.text for each in inner[at + 1 :]))
            except NoType:
                return None
    return None


def _first_argument(inner: list[Token]) -> str:
    depth, parts = 0, []
    for token in inner:
        if token.text == "," and not depth:
            break
        depth += (token.text in "([") - (token.text in ")]")
        parts.append(token.text)
    return " ".join(parts)


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
                kind = plain(_type_of_token(token, fields))
                if token.kind == "number" and kind is None:
                    kind = "decimal"
                kinds.add("number" if kind in NUMBERS else kind)
            case _:
                return False
    return (
        kinds <= {"number"} or kinds <= {"string"} or kinds <= {"timestamp"} or kinds <= {"boolean"}
    )
