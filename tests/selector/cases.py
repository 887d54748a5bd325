"""Random selectors, each with a direct implementation of its meaning.

The implementation does not use the tree of the package: each case has a function from a message to True, False
or None (NULL), put together by the rules of three-valued logic as they are in the textbooks.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from .rows import NAMES, NUMBERS, TEXTS, Row

Truth = bool | None
Reading = Callable[[Row], Any]


@dataclass(frozen=True)
class Case:
    text: str
    reading: Reading
    """Of a condition a truth, of a value the value."""

    def __repr__(self) -> str:
        return self.text


# ── constants ───────────────────────────────────────────────────────────────────────────────────


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def text_constant(text: str) -> Case:
    return Case(quoted(text), lambda row: text)


def number_constant(number: float) -> Case:
    return Case(repr(number), lambda row: number)


texts = st.sampled_from(TEXTS) | st.text(max_size=4)
positive = st.sampled_from([abs(each) for each in NUMBERS]) | st.floats(
    0, allow_infinity=False, allow_nan=False
)

# ── fields ──────────────────────────────────────────────────────────────────────────────────────


def attribute(name: str) -> Case:
    return Case(name, lambda row: known(getattr(row, name)))


def known(value: Any) -> Any:
    """Numbers as doubles, and NaN as NULL."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        double = float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return None if double != double else double


def body(row: Row) -> str | None:
    try:
        return None if row.body is None else row.body.decode()
    except UnicodeDecodeError:
        return None


def refused(word: str) -> Any:
    raise ValueError(word)


def document(row: Row) -> Any:
    try:
        return json.loads(body(row) or "", parse_constant=refused)
    except ValueError:
        return None


def member(source: str, path: list[str]) -> Case:
    def read(row: Row) -> Any:
        found: Any = row.headers if source == "headers" else document(row)
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return known(found)

    names = [name if re.fullmatch("[A-Za-z_]+", name) else f'"{name}"' for name in path]
    return Case(".".join((source, *names)), read)


members = st.builds(
    member,
    st.sampled_from(("headers", "json")),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2),
)


def only(kind: type, case: Case) -> Case:
    def read(row: Row) -> Any:
        value = case.reading(row)
        return value if type(value) is kind else None

    return Case(case.text, read)


TEXT_FIELDS = ("routing_key", "key", "message_id")
NUMBER_FIELDS = ("sequence", "offset", "timestamp")


def key(name: str) -> Case:
    return Case(name, lambda row: getattr(row, "routing_key" if name == "key" else name))


column_texts = st.sampled_from(TEXT_FIELDS).map(key)
column_numbers = st.sampled_from(NUMBER_FIELDS).map(attribute)
all_texts = column_texts | st.just(Case("body", body)) | members.map(lambda each: only(str, each))
all_numbers = column_numbers | members.map(lambda each: only(float, each))


def computed(sign: str, left: Case, right: Case) -> Case:
    operate = {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign]

    def read(row: Row) -> Any:
        a, b = left.reading(row), right.reading(row)
        return None if a is None or b is None else known(operate(a, b))

    return Case(f"({left.text} {sign} {right.text})", read)


def negative(case: Case) -> Case:
    def read(row: Row) -> Any:
        value = case.reading(row)
        return None if value is None else -value

    return Case(f"- {case.text}", read)


def arithmetic(leaves: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    leaf = leaves | positive.map(number_constant)
    return st.recursive(
        leaf,
        lambda inner: (
            st.builds(computed, st.sampled_from("+-*"), inner, inner) | st.builds(negative, inner)
        ),
        max_leaves=4,
    )


# ── conditions ──────────────────────────────────────────────────────────────────────────────────

SIGNS = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compared(sign: str, left: Case, right: Case) -> Case:
    def read(row: Row) -> Truth:
        a, b = left.reading(row), right.reading(row)
        if a is None or b is None or type(a) is not type(b):
            return None
        if type(a) not in (float, str, bool) or (type(a) is bool and sign not in ("=", "<>", "!=")):
            return None
        return bool(SIGNS[sign](a, b))

    return Case(f"{left.text} {sign} {right.text}", read)


def among(value: Case, choices: list[Case], wanted: bool) -> Case:
    def read(row: Row) -> Truth:
        a = value.reading(row)
        return None if a is None else (a in [each.reading(row) for each in choices]) is wanted

    listed = ", ".join(each.text for each in choices)
    return Case(f"{value.text} {'' if wanted else 'NOT '}IN ({listed})", read)


def between(value: Case, low: Case, high: Case, wanted: bool) -> Case:
    def read(row: Row) -> Truth:
        above, below = compared(">=", value, low), compared("<=", value, high)
        both = conjunction(above.reading(row), below.reading(row))
        return both if wanted else denial(both)

    word = "BETWEEN" if wanted else "NOT BETWEEN"
    return Case(f"{value.text} {word} {low.text} AND {high.text}", read)


PATTERNS = ("%", "_", "%carro%", "a%", "%b", "a_b", "%_%", "__", "%a_%", "_%a%b", "%a%_b%", "%\n%")


def like(value: Case, pattern: str, escape: str | None, wanted: bool) -> Case:
    """By a regular expression, which is fast enough for the patterns of tests."""
    if (
        escape is not None
    ):  # only % and _ and itself may follow it, so it is put before some of them
        pattern = "".join(
            escape + each if each == escape or (each in "%_" and i % 2) else each
            for i, each in enumerate(pattern)
        )
    source, escaped = "", False
    for each in pattern:
        if each == escape and not escaped:
            escaped = True
            continue
        source += re.escape(each) if escaped or each not in "%_" else {"%": ".*", "_": "."}[each]
        escaped = False
    compiled = re.compile(source, re.DOTALL)

    def read(row: Row) -> Truth:
        text = value.reading(row)
        return None if text is None else (compiled.fullmatch(text) is not None) is wanted

    words = f"{value.text} {'' if wanted else 'NOT '}LIKE {quoted(pattern)}"
    return Case(words if escape is None else f"{words} ESCAPE {quoted(escape)}", read)


def is_null(value: Case, wanted: bool) -> Case:
    def read(row: Row) -> Truth:
        return (value.reading(row) is None) is wanted

    return Case(f"{value.text} IS {'' if wanted else 'NOT '}NULL", read)


def bare(value: Case) -> Case:
    return only(bool, value)


def conjunction(*truths: Truth) -> Truth:
    return False if False in truths else None if None in truths else True


def denial(truth: Truth) -> Truth:
    return None if truth is None else not truth


def alternative(*truths: Truth) -> Truth:
    return denial(conjunction(*map(denial, truths)))


def both(parts: list[Case]) -> Case:
    text = " AND ".join(f"({each.text})" for each in parts)
    return Case(text, lambda row: conjunction(*(each.reading(row) for each in parts)))


def either(parts: list[Case]) -> Case:
    text = " OR ".join(f"({each.text})" for each in parts)
    return Case(text, lambda row: alternative(*(each.reading(row) for each in parts)))


def no(part: Case) -> Case:
    return Case(f"NOT ({part.text})", lambda row: denial(part.reading(row)))


def conditions(
    text: st.SearchStrategy[Case],
    number: st.SearchStrategy[Case],
    open_ended: st.SearchStrategy[Case] | None,
) -> st.SearchStrategy[Case]:
    """Over fields that are text, fields that are numbers, and, if there are any, fields that may be all."""
    signs = st.sampled_from(list(SIGNS))
    sums = arithmetic(number)
    words = text | texts.map(text_constant)
    patterns = st.sampled_from(PATTERNS) | st.text("ab%_!\\é😀", max_size=6)
    leaves = (
        st.builds(compared, signs, text, words)
        | st.builds(compared, signs, words, text)
        | st.builds(compared, signs, sums, sums)
        | st.builds(
            among, text, st.lists(texts.map(text_constant), min_size=1, max_size=12), st.booleans()
        )
        | st.builds(
            among,
            number,
            st.lists(
                (positive | positive.map(operator.neg)).map(number_constant),
                min_size=1,
                max_size=12,
            ),
            st.booleans(),
        )
        | st.builds(between, text, words, words, st.booleans())
        | st.builds(between, number, sums, sums, st.booleans())
        | st.builds(like, text, patterns, st.sampled_from((None, "!", "\\", "é")), st.booleans())
        | st.builds(is_null, column_texts | column_numbers, st.booleans())
    )
    if open_ended is not None:
        leaves |= (
            st.builds(compared, signs, open_ended, open_ended)
            | st.builds(between, open_ended, open_ended, open_ended, st.booleans())
            | st.builds(is_null, open_ended | st.just(Case("body", body)), st.booleans())
            | st.builds(bare, open_ended)
        )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, min_size=2, max_size=3).map(both)
            | st.lists(inner, min_size=2, max_size=3).map(either)
            | inner.map(no)
        ),
        max_leaves=4,
    )


column_conditions = conditions(column_texts, column_numbers, None)
all_conditions = conditions(all_texts, all_numbers, members)
