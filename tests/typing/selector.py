"""Types of `recado.selector`."""

from collections.abc import Callable
from typing import Any, assert_type

from recado.selector import Selector, SelectorError, compile_predicate, parse, to_spark_sql


def program() -> None:
    selector = parse("priority >= 3")
    assert_type(selector, Selector)
    assert_type(compile_predicate(selector), Callable[[Any], bool])
    assert_type(to_spark_sql(selector), str)
    assert_type(selector.fields(), frozenset[str])

    compile_predicate("priority >= 3")  # type: ignore[arg-type]
    parse(3)  # type: ignore[arg-type]


def errors(error: SelectorError) -> None:
    assert_type(error.line, int)
    assert_type(error.summary, str)
