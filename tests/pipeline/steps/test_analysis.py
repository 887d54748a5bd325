"""Spark's analyser checks the SQL of a pipeline: errors with their location, exact types, all together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recado.pipeline import preview
from recado.pipeline.definition import Branch, InvalidPipelineError, Pipeline, check
from recado.pipeline.definition.checker import DEAD_LETTER_FIELDS, examine
from recado.pipeline.definition.description import describe_pipeline
from recado.pipeline.runner import run
from recado.pipeline.steps.analysis import SparkAnalyser
from tests.pipeline.steps.messages import message, reading, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

JSON = {
    "symbol": "string",
    "price": "double",
    "size": "long?",
    "lines": "array<struct<sku:string,n:int>>",
}


def quotes() -> Pipeline:
    return (
        Pipeline("quotes", "state")
        .read("archive", "recado", path="archive")
        .write("out", "parquet", path="lake")
        .write("dead_letters", "parquet", path="dead")
    )


def problems(pipeline: Pipeline, spark: SparkSession, *, batch: bool = False) -> list[str]:
    found = examine(pipeline, batch=batch, analyser=SparkAnalyser(lambda: spark))[1]
    return [str(problem) for problem in found]


@pytest.mark.parametrize(
    ("pipeline", "told"),
    [
        (
            quotes().filter("length(body) > > 3"),
            "step 1 (filter): Syntax error at or near '>' (line 1, pos 15) in 'length(body) > > 3'",
        ),
        (
            quotes().filter("lenght(body) > 3"),
            "step 1 (filter): there is no function lenght in 'lenght(body) > 3'; did you mean length?",
        ),
        (quotes().filter("f_42(body)"), "step 1 (filter): there is no function f_42 in 'f_42(body)'"),
        (
            quotes().filter("pric > 3"),
            ("step 1 (filter): there is no field pric in 'pric > 3'; available are feed, offset, publisher, "
            "sequence, view, timestamp, exchange, routing_key, message_id, headers, properties, body"),
        ),
        (
            quotes().translate(json={"price": "double"}).filter("prize > 3"),
            "step 2 (filter): there is no field prize in 'prize > 3'; did you mean price?",
        ),
        (
            quotes().filter("properties.prioritee > 3"),
            "step 1 (filter): No such struct field `prioritee` in `content_type`, `content_encoding`, ",
        ),
        (
            quotes().filter("offset"),
            ('step 1 (filter): Cannot resolve "offset" due to data type mismatch: Filter expression "offset" '
            "of type \"BIGINT\" is not a boolean in 'offset'"),
        ),
        (
            quotes().write("tap", "console").wire_tap("tap", where="sqrt(1, 2) > 1"),
            "step 1 (wire_tap): The `sqrt` requires 1 parameters but the actual number is 2",
        ),
        (
            quotes().write("a", "console").route([Branch("a", where="true"), Branch("a", where="sequence >")]),
            "step 1 (route): Syntax error at or near end of input (line 1, pos 10) in 'sequence >'",
        ),
        (
            quotes().dead_letter("odd", where="sequence IN (SELECT n FROM no_table)"),
            "step 1 (dead_letter): The table or view `no_table` cannot be found",
        ),
        (
            quotes().translate(compute={"x": "ofset + 1"}),
            "step 1 (translate): there is no field ofset in 'ofset + 1'; did you mean offset?",
        ),
        (
            quotes().translate(compute={"x": "offset AS y"}),
            "step 1 (translate): Syntax error at or near ')' (line 1, pos 12) in '(offset AS y)'",
        ),
        (
            quotes().translate(compute={"timestamp": "'now'"}).write("x", "recado", url="amqp:", feed="f"),
            'sink x: the column timestamp is string, but format("recado") needs timestamp: cast or drop it',
        ),
        (
            quotes().aggregate(
                {"x": "offset"}, by=["feed"], time="timestamp", window="1 hour", late="1 second"
            ),
            'step 1 (aggregate): The non-aggregating expression "offset" is based on columns which are not ',
        ),
    ],
)  # fmt: skip
def test_what_spark_refuses_is_told_with_its_place(
    spark: SparkSession, pipeline: Pipeline, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    [problem] = problems(pipeline, spark)
    assert problem.startswith(told)
    assert capfd.readouterr() == ("", "")


def test_types_are_followed_through_the_steps(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"symbol": ["A"], "name": ["Alfa"]}), tmp_path / "names.parquet")
    pipeline = (
        quotes()
        .read("names", "parquet", path=str(tmp_path / "names.parquet"))
        .translate(
            json=JSON,
            compute={
                "value": "price * size",
                "double": "value + value",
                "day": "cast(timestamp as date)",
                "up": "upper(symbol) || 'x'",
            },
            rename={"up": "upper"},
        )
        .enrich("names", on=["symbol"], missing="keep")
        .split("lines", index="at")
        .deduplicate(by=["message_id"], time="timestamp", within="1 minute")
        .aggregate(
            {"rows": "count(*)", "last": "max_by(n, sequence)", "all": "collect_list(n)"},
            by=["sku", "DAY"],
            time="timestamp",
            window="1 minute",
            late="5 seconds",
        )
    )
    checked = check(pipeline, analyser=SparkAnalyser(lambda: spark))
    _, translated, enriched, split, _, aggregated = checked.step_fields
    assert {name: translated.types[name] for name in ("size", "double", "day", "upper")} == {
        "size": "bigint", "double": "double", "day": "date", "upper": "string",
    }  # fmt: skip
    assert enriched.type_of("NAME") == "string"
    assert "lines" not in split
    assert [split.type_of(name) for name in ("sku", "n", "at")] == ["string", "int", "int"]
    assert list(aggregated.types.items()) == [
        ("window_start", "timestamp"), ("window_end", "timestamp"), ("sku", "string"), ("DAY", "date"),
        ("rows", "bigint"), ("last", "int"), ("all", "array<int>"),
    ]  # fmt: skip
    assert checked.sink_fields == {"out": aggregated, "dead_letters": DEAD_LETTER_FIELDS}
    text = describe_pipeline(checked)
    assert "+ name string" in text
    assert "= window_start timestamp, window_end timestamp, sku string" in text


def test_a_mistake_hides_no_other_and_causes_none(spark: SparkSession) -> None:
    pipeline = (
        quotes()
        .translate(compute={"x": "no_function(offset)", "y": "upper(x) ||", "z": "x + 1"})
        .filter("x > 3 AND transform(y, each -> each) IS NOT NULL")
        .filter("sequenze > 1")
        .wire_tap("nowhere")
    )
    assert [each.partition(" in ")[0] for each in problems(pipeline, spark)] == [
        "step 1 (translate): there is no function no_function",
        "step 1 (translate): Syntax error at or near end of input (line 1, pos 11)",
        "step 3 (filter): there is no field sequenze",
        "step 4 (wire_tap): there is no sink nowhere; add it to the sinks; available are out, dead_letters",
    ]


def test_what_is_not_known_is_not_guessed(spark: SparkSession) -> None:
    unknown = quotes().apply("module:function")
    assert not problems(unknown.filter("anything.inside > 3 AND registered_by_it(body)"), spark)
    assert problems(unknown.filter("a > > 3"), spark)
    files = quotes().read("archive", "csv", path="files")
    assert not problems(files.filter("upper(anything) = 'A'"), spark)
    [problem] = problems(files.filter("uper(anything) = 'A'"), spark)
    assert problem.endswith("did you mean upper?")
    odd = quotes().apply("module:function", fields={"s": "struct<`a b`:int>"})
    assert "unknown type" in problems(odd, spark)[0]


def test_whether_dead_letters_are_possible_is_known_by_types(spark: SparkSession) -> None:
    counted = (
        Pipeline("x")
        .read("r", "csv", path="files", schema="k string")
        .aggregate({"n": "count(*)"}, by=["k"])
        .write("out", "console")
    )
    assert not problems(counted.filter("n > 3"), spark, batch=True)
    assert "dead letters" in problems(counted.filter("n > k"), spark, batch=True)[0]


def test_expressions_that_are_too_long_for_spark(spark: SparkSession) -> None:
    [problem] = problems(quotes().filter("offset" + " + offset" * 5000 + " > 1"), spark)
    assert "too complex to parse" in problem
    assert len(problem) < 400


def test_nothing_runs_if_spark_refuses_it(spark: SparkSession, tmp_path: Path) -> None:
    folder = stored(tmp_path / "in", [message(1, {})])
    pipeline = (
        reading("syn", folder, tmp_path / "state")
        .filter("length(body) > > 3")
        .filter("no_function(body)")
        .write("out", "parquet", path=str(tmp_path / "out"))
        .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
    )
    for batch in (True, False):
        with pytest.raises(InvalidPipelineError, match="at or near '>'") as refusal:
            run(pipeline, spark, batch=batch)
        assert len(refusal.value.problems) == 2
    with pytest.raises(InvalidPipelineError, match="there is no function no_function"):
        preview(pipeline, spark)
    assert not (tmp_path / "state").exists()


def test_what_only_the_run_can_know_has_its_place_too(spark: SparkSession, tmp_path: Path) -> None:
    folder = stored(tmp_path / "in", [message(1, {})])
    pipeline = (
        reading("late", folder, tmp_path / "state")
        .apply(unchanged, stateful=False)
        .filter("sequenze > 1")
        .write("out", "parquet", path=str(tmp_path / "out"))
        .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
    )
    with pytest.raises(
        InvalidPipelineError, match=r"step 2 \(filter\): .*`sequenze` cannot be resolved"
    ):
        run(pipeline, spark, batch=True)


def unchanged(rows: DataFrame) -> DataFrame:
    return rows
