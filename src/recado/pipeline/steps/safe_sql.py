"""Expressions that fail: in ANSI mode, Spark's own, a row that cannot be computed fails the whole query.

`try_to_binary` gives NULL for whatever goes wrong below it. So an expression that is evaluated below it, for
the sake of its failures alone, tells which rows fail, before it is evaluated where its value is wanted. It
stands in a lambda, where Spark does not see that the two are the same and does not compute them once for
both.
"""

from __future__ import annotations

from ..definition.condition import RowCondition


def failure_sql(sql: str) -> str:
    """SQL that is true of rows on which this expression fails, and false of all others."""
    tried = f"CAST(size(transform(array(0), __each -> ({sql}))) AS STRING)"
    return f"(try_to_binary({tried}, 'utf-8') IS NULL)"


def null_on_failure_sql(sql: str, *, can_fail: bool) -> str:
    """The expression, and NULL where it fails."""
    return f"(CASE WHEN NOT {failure_sql(sql)} THEN ({sql}) END)" if can_fail else f"({sql})"


def match_sql(chosen: RowCondition) -> str:
    """SQL that is true of the rows that are meant, and false of all others."""
    return f"coalesce({null_on_failure_sql(chosen.sql, can_fail=chosen.can_fail)}, FALSE)"
