"""Selectors as Spark SQL, executed by Spark."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from recado.selector import SelectorError, compile_predicate, parse, to_spark_sql
from recado.selector.spark import ARCHIVE_COLUMNS
from tests.feeds.archive.page import COUNT, run
from tests.feeds.archive.page import folder as folder

from .cases import Case, all_conditions, no
from .rows import NO_JSON, ODD_JSON, Row, rows, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = {**ARCHIVE_COLUMNS, "headers": "`headers`"}
# Few jobs with much to do in each: selectors are dear, because Spark plans each, and messages are cheap.
CASES, ROWS, JOBS = 10, 20, 3


def answers(
    spark: SparkSession, folder: Path, texts: list[str], messages: list[Row]
) -> list[list[object]]:
    """Of each message what Spark says to each selector."""
    file = folder / "rows.parquet"
    pq.write_table(table(messages), file)
    columns = [
        f"{to_spark_sql(parse(text), COLUMNS)} AS c{place}" for place, text in enumerate(texts)
    ]
    return [list(row) for row in spark.read.parquet(str(file)).selectExpr(*columns).collect()]


def mixed(messages: list[Row]) -> list[Row]:
    """As many more as there are fields: each takes its fields from several."""
    columns = [[getattr(each, field.name) for each in messages] for field in fields(Row)]
    turned = (
        [
            column[turn * place % ROWS :] + column[: turn * place % ROWS]
            for place, column in enumerate(columns)
        ]
        for turn in range(1, len(columns))
    )
    return [Row(*values) for each in turned for values in zip(*each, strict=True)]


@settings(
    max_examples=JOBS,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink would take an hour
    suppress_health_check=list(HealthCheck),
)
@given(
    cases=st.lists(all_conditions, min_size=CASES, max_size=CASES),
    messages=st.lists(rows, min_size=ROWS, max_size=ROWS),
)
def test_spark_decides_as_python_does(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    cases: list[Case],
    messages: list[Row],
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    messages = [*messages, *mixed(messages)]
    texts = [case.text for case in cases] + [no(case).text for case in cases]
    for message, found in zip(messages, answers(spark, folder, texts, messages), strict=True):
        for place, case in enumerate(cases):
            truth = case.reading(message)
            expected = (truth is True, truth is False)
            said = (found[place] is True, found[place + CASES] is True)
            assert said == expected, (case.text, message)


TEXTS = [
    "json.a IS NULL",
    "json.a = 1",
    "json.a > 0",
    "json.a = 'a'",
    "json.a.b = 'a'",
    "json.a = json.b",
    "json.a <> json.b",
    "json.a",
    "NOT json.a",
    "body IS NULL",
    "body LIKE '%carro'",
]


def test_bodies_that_are_odd(spark: SparkSession, tmp_path: Path) -> None:
    twice = (b'{"a": 1, "a": 2}', b'{"a": 1} {"a": 1}', b'{"a": 1}, 0] x', b'{"a": true}')
    large = (b" " * (1 << 20), b" " * (1 << 20) + b" carro", b'{"a": 1%s}' % (b" " * (1 << 20)))
    messages = [
        Row(None, None, None, None, None, None, body)
        for body in (None, *NO_JSON, *ODD_JSON, *twice, *large)
    ]
    for message, found in zip(messages, answers(spark, tmp_path, TEXTS, messages), strict=True):
        expected = {text: compile_predicate(parse(text))(message) for text in TEXTS}
        said = {text: truth is True for text, truth in zip(TEXTS, found, strict=True)}
        assert said == expected, message.body


def test_compiled_spark_decides_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """In production expressions are compiled, unless they are too large."""
    bodies = (*NO_JSON, *ODD_JSON)
    messages = [Row("a", "b", 1.0, 2, 3, {"a": 1}, body) for body in bodies]
    texts = [*TEXTS, "sequence + offset = 3 AND headers.a = 1", "routing_key IN ('a', '''')"]
    walked = answers(spark, tmp_path, texts, messages)
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")
    try:
        assert answers(spark, tmp_path, texts, messages) == walked
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
        spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


def test_the_text() -> None:
    assert to_spark_sql(parse("sequence > -1 AND routing_key LIKE 'a!%%' ESCAPE '!'")) == (
        "((nanvl(CAST(`sequence` AS DOUBLE), CAST(NULL AS DOUBLE)) > nanvl((- 1.0D), CAST(NULL AS DOUBLE))) "
        "AND (`routing_key` LIKE 'a!%%' ESCAPE '!'))"
    )
    assert to_spark_sql(parse("key = 'it''s'")) == "(`routing_key` = CAST(X'69742773' AS STRING))"
    assert to_spark_sql(parse("type = 'a'"), {"type": "kind"}) == "(kind = 'a')"
    assert to_spark_sql(parse("sequence IN (1, 2)")) == (
        "((nanvl(CAST(`sequence` AS DOUBLE), CAST(NULL AS DOUBLE)) + 0.0D) IN (1.0D, 2.0D))"
    )


def test_a_field_that_is_no_column() -> None:
    with pytest.raises(
        SelectorError, match=r"line 1, column 16: the table has no column for priority"
    ):
        to_spark_sql(parse("offset > 1 AND priority > 1"))
    with pytest.raises(SelectorError, match="column 1: the table has no column for headers"):
        to_spark_sql(parse("headers.a = 1"))


def test_the_archive_page(folder: Path, spark: SparkSession) -> None:
    """The table of an archive, as docs/archive.md has it read."""
    found = run(folder, "spark.read", spark=spark)
    assert found["rows"].count() == 4 * COUNT
    assert found["dear"].count() == 4 * 14
    kinds = {each.name: each.dataType.simpleString() for each in found["rows"].schema}
    assert {name: kinds[name] for name in ("offset", "publisher", "timestamp", "body", "date")} == {
        "offset": "bigint",
        "publisher": "string",
        "timestamp": "timestamp",
        "body": "binary",
        "date": "date",
    }
