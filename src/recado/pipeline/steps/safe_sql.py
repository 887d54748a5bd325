"""SQL that finds out on which rows an expression fails, without failing itself.

In ANSI mode, Spark's default, a row on which an expression fails ends the whole query. `try_to_binary`
returns NULL if anything below it fails. So the expression is evaluated below `try_to_binary`, only to see
whether it fails, before it is evaluated for its value. The first evaluation is in a lambda, where Spark does
not recognise the common subexpression and does not merge both evaluations.
"""

from __future__ import annotations

from ..definition.condition import RowCondition


def failure_sql(sql: str) -> str:
    """Return SQL that is true for rows on which the expression fails, and false for all others."""
    tried = f"CAST(size(transform(array(0), __each -> ({sql}))) AS STRING)"
    return f"(try_to_binary({tried}, 'utf-8') IS NULL)"


def null_on_failure_sql(sql: str, *, can_fail: bool) -> str:
    """Return SQL of the expression that is NULL where the expression fails."""
    return f"(CASE WHEN NOT {failure_sql(sql)} THEN ({sql}) END)" if can_fail else f"({sql})"


def match_sql(condition: RowCondition) -> str:
    """Return SQL that is true for the matching rows, and false for all others."""
    return f"coalesce({null_on_failure_sql(condition.sql, can_fail=condition.can_fail)}, FALSE)"
