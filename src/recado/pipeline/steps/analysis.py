"""Check the SQL expressions of a pipeline with Spark's parser and analyser on an empty DataFrame.

    check(pipeline, analyser=SparkAnalyser(lambda: spark))

The DataFrame has the columns that the expression can see, so Spark reports syntax errors, unknown functions,
missing columns and wrong types before anything is read. A column of unknown type is NULL, which Spark
converts to any type. An error that may be caused by a column of unknown type, or by a column that only the
source knows, is not reported here but when the pipeline runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, NullType, StructField, StructType

from ..definition.expression import (
    Analysis,
    ExpressionError,
    UnregisteredNameError,
    is_safe,
    reject_failing_operators,
    tokenize,
)
from ..definition.fields import Fields
from ..definition.problems import closest_name, quote_excerpt, suggest_name
from .flow import columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNREGISTERED_CONDITIONS: Final = ("UNRESOLVED_ROUTINE", "TABLE_OR_VIEW_NOT_FOUND")
_CERTAIN_CONDITIONS: Final = (*_UNREGISTERED_CONDITIONS, "WRONG_NUM_ARGS")
"""Error conditions that do not depend on the columns."""
_QUERY_CONTEXT_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SparkAnalyser:
    """A `SqlAnalyser` that uses Spark. It calls `session` for the first expression only."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._types: dict[str, DataType] = {}

    @cached_property
    def _spark(self) -> SparkSession:
        return self._session()

    @cached_property
    def _functions(self) -> list[str]:
        return [str(row[0]) for row in self._spark.sql("SHOW FUNCTIONS").collect()]

    def analyse_condition(self, sql: str, fields: Fields) -> Analysis:
        def filter_rows(rows: DataFrame, text: str) -> DataFrame:
            return rows.where(text).select(f.lit(True))

        return Analysis(self._infer_type(sql, fields, filter_rows), not is_safe(sql, fields))

    def analyse_column(self, sql: str, fields: Fields) -> Analysis:
        def add_column(rows: DataFrame, text: str) -> DataFrame:
            return rows.select(f.expr(text).alias("value"))

        return Analysis(self._infer_type(sql, fields, add_column), not is_safe(sql, fields))

    def analyse_aggregate(self, sql: str, fields: Fields, by: Sequence[str]) -> Analysis:
        def group_rows(rows: DataFrame, text: str) -> DataFrame:
            keys = columns(name for name in by if name in fields)
            return rows.groupBy(*keys).agg(f.expr(text).alias("value")).select("value")

        reject_failing_operators(sql)
        return Analysis(
            self._infer_type(sql, fields, group_rows, in_brackets=False), can_fail=False
        )

    def _infer_type(
        self,
        sql: str,
        fields: Fields,
        use: Callable[[DataFrame, str], DataFrame],
        *,
        in_brackets: bool = True,
    ) -> str | None:
        """Return the type of the column that `use` makes of the expression; None if it is unknown.

        Steps put most expressions in brackets, so an expression must be valid in brackets. The position of an
        error is that in the expression without brackets, if it is invalid there as well.
        """
        tokenize(sql)  # rejects brackets that are nested too deeply for Spark's parser
        rows = self._empty_rows(fields)
        errors: list[tuple[AnalysisException, str]] = []
        with _disable_error_log():
            for text in (f"({sql})", sql) if in_brackets else (sql,):
                try:
                    kind = use(rows, text).dtypes[0][1]
                except AnalysisException as error:
                    errors.append((error, text))
                else:
                    if not errors:
                        return kind
        refusal, text = errors[-1]
        if _is_certain(refusal, rows, fields):
            raise self._to_expression_error(refusal, text, fields)
        return None

    def _empty_rows(self, fields: Fields) -> DataFrame:
        spark = self._spark  # parsing types needs the session
        known = [StructField(name, self._parse_type(kind)) for name, kind in fields.types.items()]
        return spark.createDataFrame([], StructType(known))

    def _parse_type(self, kind: str | None) -> DataType:
        if kind is None:
            return NullType()
        if kind not in self._types:
            with _disable_error_log():
                try:
                    self._types[kind] = DataType.fromDDL(kind)
                except ParseException:  # names in structs are not quoted
                    self._types[kind] = NullType()
        return self._types[kind]

    def _to_expression_error(
        self, error: AnalysisException, sql: str, fields: Fields
    ) -> ExpressionError:
        parameters = error.getMessageParameters() or {}
        condition = error.getCondition() or ""
        if condition.startswith("UNRESOLVED_COLUMN"):
            name = parameters["objectName"].replace("`", "")
            return ExpressionError(
                f"there is no field {name} in {quote_excerpt(sql)}",
                suggest_name(name, fields.types),
            )
        if condition == "UNRESOLVED_ROUTINE":
            name = parameters["routineName"].replace("`", "")
            close = closest_name(name, self._functions)
            return UnregisteredNameError(
                f"there is no function {name} in {quote_excerpt(sql)}",
                f"did you mean {close}?" if close else "",
            )
        kind = UnregisteredNameError if condition in _UNREGISTERED_CONDITIONS else ExpressionError
        return kind(f"{summarize_analysis_error(error)} in {quote_excerpt(sql)}")


def summarize_analysis_error(error: AnalysisException) -> str:
    """Return the first line of Spark's message, such as `Syntax error at or near '>' (line 1, pos 12)`."""
    text = str(error).strip()
    line = re.sub(r"^\[[\w.]+\] ", "", text.splitlines()[0] if text else type(error).__name__)
    line, _, rest = line.partition(" SQLSTATE:")
    position = re.search(r"line \d+,? pos \d+", rest)
    return line.rstrip(".;") + (f" ({position[0]})" if position else "")


def _is_certain(error: AnalysisException, rows: DataFrame, fields: Fields) -> bool:
    """Whether an error is certain, whatever the unknown columns and types are."""
    condition = error.getCondition() or ""
    if isinstance(error, ParseException) or condition.startswith(_CERTAIN_CONDITIONS):
        return True
    if fields.is_open:
        return False
    has_unknown_types = any(isinstance(field.dataType, NullType) for field in rows.schema.fields)
    return condition.startswith("UNRESOLVED_COLUMN") or not has_unknown_types


@contextmanager
def _disable_error_log() -> Iterator[None]:
    """PySpark logs each analysis error with its Java stack trace, even if it is handled."""
    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_CONTEXT_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
