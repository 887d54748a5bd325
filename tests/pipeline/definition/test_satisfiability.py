"""A selector reported as unsatisfiable matches no message, and simple contradictions are found."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.pipeline.definition.satisfiability import is_unsatisfiable
from recado.selector import compile_predicate, parse

COMPARED = st.builds(
    "{} {} {}".format,
    st.sampled_from(["priority", "sequence", "headers.n"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.integers(-1, 4),
)
OTHERS = st.sampled_from(
    ["priority IS NULL", "priority IS NOT NULL", "headers.n IS NULL", "headers.n = 'a'", "headers.n",
     "priority IN (1, 2)", "priority NOT IN (1, 2)", "headers.n LIKE 'a%'", "TRUE", "FALSE", "1 > 2"]
)  # fmt: skip
CONDITIONS = st.recursive(
    COMPARED | OTHERS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)
MESSAGES = [
    SimpleNamespace(priority=priority, sequence=sequence, headers={"n": n} if n is not None else {})
    for priority in (None, 0, 1, 1.5, 2, 3, 4)
    for sequence in (0, 1, 2.5, 3, 5)
    for n in (None, -2, 0, 1, 2, 3.5, 5, "a", "b", True, False)
]


@given(CONDITIONS)
@settings(max_examples=300)
def test_none_is_true_of_any_message(text: str) -> None:
    selector = parse(text)
    if is_unsatisfiable(selector):
        wanted = compile_predicate(selector)
        assert not [message for message in MESSAGES if wanted(message)]


@pytest.mark.parametrize(
    "text",
    [
        "priority > 5 AND priority < 3", "priority > 300", "offset < 0", "priority = 1 AND priority = 2",
        "priority > 1 AND priority <= 1", "key = 'a' AND key = 'b'", "key > 'b' AND key < 'a'",
        "priority IS NULL AND priority = 3", "priority IS NULL AND priority IS NOT NULL", "FALSE", "2 < 1",
        "headers.a = 1 AND headers.a = 'x'", "priority IN (1, 2) AND priority > 3",
        "(priority > 5 AND priority < 3) OR key = 'a' AND key = 'b'", "NOT (priority <= 300)",
        "headers.a AND NOT headers.a", "priority = 3 AND priority <> 3",
    ],
)  # fmt: skip
def test_found(text: str) -> None:
    assert is_unsatisfiable(parse(text))
