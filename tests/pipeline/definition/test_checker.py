"""The checker reports problems before Spark starts, and infers fields and types through the steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recado.feeds.archive.store import ArchiveStore
from recado.pipeline.definition import Branch, InvalidPipelineError, Pipeline, check
from recado.pipeline.definition.checker import DEAD_LETTER_FIELDS, examine
from recado.pipeline.definition.description import describe_pipeline
from recado.pipeline.definition.formats import source_options
from recado.pipeline.stream_state import feed_staging_folder


def quotes(checkpoint: str = "state", trigger: str = "") -> Pipeline:
    return (
        Pipeline("quotes", checkpoint, trigger)
        .read("archive", "recado", path="archive")
        .write("out", "parquet", path="lake")
        .write("dead_letters", "parquet", path="dead")
    )


TRANSLATED = {
    "symbol": "string",
    "price": "double",
    "size": "long?",
    "lines": "array<struct<sku:string,n:int>>",
}


def problems(pipeline: Pipeline, *, batch: bool = False) -> list[str]:
    return [str(problem) for problem in examine(pipeline, batch=batch)[1]]


def test_fields_are_followed_through_the_steps(tmp_path: Path) -> None:
    """The types of SQL expressions are Spark's to tell: `tests/pipeline/steps/test_analysis.py`."""
    pq.write_table(pa.table({"symbol": ["A"], "name": ["Alfa"]}), tmp_path / "names.parquet")
    pipeline = (
        quotes()
        .read("names", "parquet", path=str(tmp_path / "names.parquet"))
        .translate(json=TRANSLATED, compute={"up": "upper(symbol)"}, rename={"up": "upper"})
        .enrich("names", on=["symbol"], missing="keep")
        .split("lines", index="at")
        .filter("upper > 3")
        .aggregate(
            {"rows": "count(*)"},
            by=["sku"],
            time="timestamp",
            window="1 minute",
            late="5 seconds",
        )
    )
    checked = check(pipeline)
    _, translated, enriched, split, _, aggregated = checked.step_fields
    assert (translated.types["size"], translated.types["upper"]) == ("bigint", None)
    assert enriched.type_of("NAME") == "string"
    assert "lines" not in split
    assert [split.type_of(name) for name in ("sku", "n", "at")] == ["string", "int", "int"]
    assert list(aggregated.types.items()) == [
        ("window_start", "timestamp"), ("window_end", "timestamp"), ("sku", "string"), ("rows", None),
    ]  # fmt: skip
    assert checked.sink_fields == {"out": aggregated, "dead_letters": DEAD_LETTER_FIELDS}
    told = describe_pipeline(checked)
    assert "+ name string" in told
    assert "= window_start timestamp, window_end timestamp, sku string, rows ?" in told


@pytest.mark.parametrize(
    ("pipeline", "told"),
    [
        (quotes().filter("feed = 'a"), "unterminated string at"),
        (quotes().filter("(feed = 'a'"), "unclosed bracket"),
        (quotes().filter(), "exactly one of where and selector is required"),
        (quotes().filter(selector="priority > 3 AND priority < 2"), "can never be true"),
        (quotes().filter(selector="priority >"), "line 1, column 11: expected a value"),
        (quotes().filter(selector="cluster_id = 'a'"), "the table has no column for cluster_id"),
        (
            quotes().translate(select=["feed"]).filter(selector="headers.a = 1"),
            "these rows have no headers",
        ),
        (quotes().translate(json={"a": "strnig"}), "json.a: unknown type 'strnig'"),
        (quotes().translate(select=["fed"]), "there is no field fed; did you mean feed?"),
        (quotes().translate(rename={"fed": "x"}), "there is no field fed; did you mean feed?"),
        (quotes().translate(rename={"feed": "body"}), "there is a field body already; rename"),
        (
            quotes().translate(rename={"feed": "x", "view": "X"}),
            "there is a field X already; rename that field too",
        ),
        (quotes().translate(extra="refuse"), "extra needs json"),
        (quotes().enrich("names", on=["symbol"]), "there is no source names"),
        (
            quotes().route([Branch("outt", where="TRUE")]),
            "there is no sink outt; did you mean out?",
        ),
        (quotes().wire_tap("tap"), "there is no sink tap"),
        (quotes().split("body"), "body is binary; it must be array"),
        (
            quotes().aggregate({"n": "count(*)"}, by=["feed"]),
            "a stream needs the options window and late",
        ),
        (
            quotes().aggregate({"n": "count(*)"}, time="feed", window="1 hour", late="1 s"),
            "feed is string; it must be timestamp",
        ),
        (
            quotes().aggregate({"n": "count(*)"}, window="1 hr", time="timestamp"),
            "window is '1 hr', not a duration",
        ),
        (
            quotes().aggregate({"x": "sum(offset) / sum(sequence)"}, by=["feed"]),
            "/ in 'sum(offset) / sum(sequence)' can fail and stop the pipeline; try_divide(a, b)",
        ),
        (quotes().aggregate({"x": "sum(cast(view AS int))"}, by=["feed"]), "try_cast(a AS …)"),
        (quotes(trigger="1.5 minutes"), "trigger: '1.5 minutes' is not a duration"),
        (quotes().deduplicate(by=["message_id"]), "a stream needs the options time and within"),
        (
            quotes().resequence(by=["publisher"], sequence="view"),
            "view is string; it must be bigint",
        ),
        (
            quotes()
            .aggregate({"n": "count(*)"}, time="timestamp", window="1 second", late="1 second")
            .aggregate({"m": "sum(n)"}, time="window_start", window="1 minute", late="1 second"),
            "step 2 (aggregate): it uses the time of rows after step 1 (aggregate); read the output",
        ),
        (
            quotes()
            .aggregate({"n": "count(*)"}, time="timestamp", window="1 second", late="1 second")
            .deduplicate(by=["n"], time="window_end", within="1 minute"),
            "step 2 (deduplicate): it uses the time of rows after step 1 (aggregate)",
        ),
        (
            quotes().resequence(by=["publisher"]).apply("a:b"),
            "step 2 (apply): it is stateful, and so is step 1 (resequence)",
        ),
        (
            quotes().apply("function"),
            "invalid function name 'function'; write package.module:function",
        ),
        (quotes(checkpoint=""), "checkpoint: a stream needs a checkpoint folder"),
        (quotes(checkpoint="file://host/y"), "checkpoint: file://host/y names a host"),
        (
            quotes(checkpoint="hdfs://x/y").write("feed", "recado", url="amqp://x", feed="f"),
            "sink feed: the option staging is required: a folder that all machines mount; the checkpoint hdfs",
        ),
        (
            Pipeline("x", checkpoint="hdfs://x/y").read("q", "amqp", url="amqp://x", queue="q"),
            'source q: format("amqp") needs the option spool',
        ),
        (
            quotes().read("q", "amqp", url="amqp://x", queue="q", spool="s3://b/q"),
            "source q: s3://b/q is not a local folder",
        ),
        (
            quotes().read("more", "recado", path="hdfs:/archive"),
            "source more: hdfs:/archive is not a local folder",
        ),
        (
            quotes().write("feed", "recado", url="amqp://x", feed="f", staging="S3://b/x"),
            "sink feed: S3://b/x is not a local folder",
        ),
        (quotes().write("p", "parquet", path="s3a://b/p"), "use the format delta or iceberg there"),
        (
            quotes().write("p", "parquet", path="hdfs://n/p"),
            "must be in a folder, local or mounted",
        ),
        (quotes().write("p", "parquet", path="odd:p"), "a local folder of this name is ./odd:p"),
        (
            quotes().write("d", "delta", path="ftp://b/d"),
            "sink d: option path is ftp://b/d, but there is",
        ),
        (quotes().write("d", "delta", path="S4:d"), "there is no object store for s4"),
        (quotes().write("d", "delta", path="s3:/d"), "without a bucket: write s3://BUCKET/PATH"),
        (
            quotes().write("d", "delta", path="S3A:///d"),
            "without a bucket: write s3a://BUCKET/PATH",
        ),
        (quotes().write("d", "delta", path=""), "sink d: a path is empty"),
        (quotes().write("p", "parquet", path=""), "sink p: a path is empty"),
        (
            quotes().write("p", "parquet", path="file://host/p"),
            "sink p: file://host/p names a host",
        ),
        (
            quotes()
            .write("dead_letters", "recado", url="amqp://x", feed="f")
            .read("r", "recado", path="s3://b/r"),
            "source r: s3://b/r is not a local folder",
        ),
        (
            quotes().write("i", "iceberg", table="a.b", warehouse="hdfs://n/i"),
            "sink i: option warehouse is hdfs://n/i, but there is no object store for hdfs",
        ),
        (
            quotes().write("i", "iceberg", table="a.b", warehouse="s3://b/i"),
            "name the database of the catalogue with the option catalogue",
        ),
        (
            quotes().write("d", "delta", path="s3://b/d", storage="secret"),
            'option storage of format("delta"): expected `object`, got `str`; write a table of strings',
        ),
        (
            quotes().read("t", "delta", path="ftp://b/t").enrich("t", on=["offset"]),
            "source t: option path is ftp://b/t, but there is no object store for ftp",
        ),
        (quotes(trigger="often"), "trigger: 'often' is not a duration"),
        (
            quotes().read("q", "amqp", url="amqp://x", queue="q"),
            "is a field of only one of the sources",
        ),
        (quotes().read("x", "recado", pth="x"), "has no option 'pth'; did you mean path?"),
        (
            quotes().read("x", "recadoo", path="x"),
            "there is no format 'recadoo'; did you mean recado?",
        ),
        (quotes().read("x", "json", schema="a strng"), "invalid type in schema: 'strng'"),
        (
            quotes().write("x", "parket", path="x"),
            "there is no format 'parket'; did you mean parquet?",
        ),
        (quotes().write("x", "parquet", pth="x"), "has no option 'pth'; did you mean path?"),
        (quotes().write("x", "parquet", path="x", partitionBy="fed"), "partitionBy names fed"),
        (quotes().write("x", "iceberg", table="t", warehouse="w"), "write NAMESPACE.NAME"),
        (
            quotes().translate(select=["feed"]).write("x", "amqp", url="amqp://x"),
            "messages need a column body",
        ),
        (
            quotes()
            .translate(select=["feed", "body"])
            .write("x", "amqp", url="amqp:", exchange="e"),
            "makes message ids of the column message_id",
        ),
        (
            quotes().translate(select=["feed", "body"]).write("x", "recado", url="amqp:", feed="f"),
            "makes message ids of the column message_id",
        ),
        (quotes().write("x", "recado", url="http://x", feed="f"), "unknown URL scheme"),
        (quotes().write("x", "recado", url="udp://x", feed="f"), "option url of format"),
        (quotes().write("x", "amqp", url="ampq://x"), "unknown URL scheme"),
        (quotes().read("q", "amqp", url="ampq://x", queue="q"), "unknown URL scheme"),
        (
            quotes()
            .translate(select=["sequence", "body", "message_id"])
            .write("x", "amqp", url="amqp:"),
            "needs the option exchange",
        ),
        (
            quotes().write("dead_letters", "amqp", url="amqp://x"),
            "dead letters need the option exchange; otherwise they return to their source",
        ),
        (
            quotes().write("dead_letters", "amqp", url="amqp://x", exchange="dead"),
            "dead letters need the option routingKey",
        ),
        (
            Pipeline("x", checkpoint="c")
            .read("jobs", "amqp", url="amqp://x", queue="jobs")
            .write("out", "console")
            .write("dead_letters", "amqp", url="amqp://x", exchange="", routingKey="jobs"),
            "dead letters return to their source jobs",
        ),
        (
            Pipeline("x", checkpoint="c")
            .read("quotes", "recado", path="archive", feed="quotes")
            .write("out", "console")
            .write("dead_letters", "recado", url="amqp://x", feed="quotes"),
            "dead letters return to their source quotes",
        ),
        (Pipeline("x y", checkpoint="c"), "name: 'x y' is not a valid name"),
        (quotes().write("a/b", "console"), "sinks: 'a/b' is not a valid name"),
        (
            Pipeline("x", checkpoint="c").read("..x/y", "rate"),
            "sources: '..x/y' is not a valid name",
        ),
        (Pipeline("x", checkpoint="c"), "sources: the pipeline has no source to read from"),
        (Pipeline("x", checkpoint="c"), "sinks: no sink for the rows after the last step"),
        (
            Pipeline("x", checkpoint="c").read("r", "rate").translate(json={"a": "int"}),
            "dead letters: step 1 (translate) can produce dead letters, but there is no sink",
        ),
    ],
)
def test_what_is_wrong_is_told(pipeline: Pipeline, told: str) -> None:
    assert [each for each in problems(pipeline) if told in each], problems(pipeline)
    with pytest.raises(InvalidPipelineError):
        check(pipeline)


def test_dead_letters_may_go_to_another_place(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "quotes") as store:
        store.sync()
    archive = quotes().read("archive", "recado", path=str(tmp_path))
    assert not problems(archive.write("dead_letters", "recado", url="amqp://x", feed="dead"))
    (told,) = problems(archive.write("dead_letters", "recado", url="amqp://x", feed="quotes"))
    assert told.startswith("sink dead_letters: dead letters return to their source")
    fanout = quotes().write("dead_letters", "amqp", url="amqp://x", exchange="dead", routingKey="")
    assert not problems(fanout)


def test_an_exchange_needs_no_key() -> None:
    """It may be a fanout."""
    selected = quotes().translate(select=["body", "message_id"])
    assert not problems(selected.write("x", "amqp", url="amqp://x", exchange="news"))
    assert problems(selected.write("x", "amqp", url="amqp://x", exchange=""))


def test_spools_and_notes_are_in_the_checkpoint_however_it_is_written(tmp_path: Path) -> None:
    jobs = Pipeline("x", f"file://{tmp_path}").read("jobs", "amqp", url="amqp://x", queue="jobs")
    assert source_options(jobs, "jobs")["spool"] == str(tmp_path / "spool" / "jobs")
    assert feed_staging_folder(jobs.checkpoint) == tmp_path / "recado" / "feeds"


def test_all_problems_are_told_at_once() -> None:
    pipeline = quotes().filter("a > '1").translate(select=["b"]).wire_tap("nowhere")
    assert [each.split(":")[0] for each in problems(pipeline)] == [
        "step 1 (filter)", "step 2 (translate)", "step 3 (wire_tap)",
    ]  # fmt: skip


def test_a_batch_needs_less_than_a_stream() -> None:
    pipeline = quotes(checkpoint="").aggregate({"n": "count(*)"}, by=["feed"])
    assert not problems(pipeline.deduplicate(by=["feed"]), batch=True)
    assert problems(pipeline)
    queue = quotes().read("q", "amqp", url="amqp://x", queue="q")
    assert any("a queue cannot be read as a batch" in each for each in problems(queue, batch=True))


def test_what_a_function_makes_is_not_guessed() -> None:
    unknown = quotes().apply("module:function").translate(select=["anything"])
    assert not problems(unknown)
    known = (
        quotes().apply("module:function", fields={"price": "double"}).translate(select=["prize"])
    )
    assert problems(known) == ["step 2 (translate): there is no field prize; did you mean price?"]


def test_only_what_can_fail_needs_a_sink_for_it() -> None:
    pipeline = Pipeline("x", checkpoint="c").read("r", "rate").write("out", "console")
    assert not problems(pipeline.filter("value > 3 AND value < 7"))
    assert problems(pipeline.filter("cast(value as int) > 3"))
    assert problems(pipeline.route([Branch("out", where="value > 3")]))


def test_checking_starts_no_spark() -> None:
    code = (
        "import sys; from recado.pipeline.definition import Pipeline, check;"
        "check(Pipeline('x', checkpoint='c').read('r', 'recado', path='p').write('o', 'parquet', path='p'));"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["../../o", "a/b", "a\0b", "", "n" * 65])
def test_names_become_names_of_files(name: str) -> None:
    """`PATH/batch=PIPELINE-SINK-ID`, `spool/SOURCE`: with a path in it a batch would be elsewhere."""
    wrong = quotes().write(name, "parquet", path="other").read(name, "recado", path="archive")
    told = [each for each in problems(wrong) if "is not a valid name" in each]
    assert [each.partition(":")[0] for each in told] == ["sources", "sinks"]


@pytest.mark.parametrize(
    ("window", "slide", "told"),
    [
        ("0 seconds", "", "must be longer than 0"),
        ("1 second", "0 seconds", "must be longer than 0"),
        ("1 second", "1 minute", "slide '1 minute' is longer than window '1 second'"),
        ("99999999999999 days", "", "window is '99999999999999 days', not a duration"),
    ],
)
def test_windows_that_spark_would_refuse(window: str, slide: str, told: str) -> None:
    wrong = quotes().aggregate(
        {"rows": "count(*)"}, time="timestamp", window=window, slide=slide, late="0 seconds"
    )
    [problem] = problems(wrong)
    assert told in problem


@pytest.mark.parametrize(
    "wrong",
    [
        quotes().filter(selector=" OR ".join(f"key = 'S{n}'" for n in range(40_000))),
        quotes().filter("(" * 100_000 + "true" + ")" * 100_000),
        quotes().read("deep", "csv", schema="n " + "array<" * 10_000 + "int" + ">" * 10_000),
    ],
    ids=["a long selector", "brackets in brackets", "a deep schema"],
)
def test_what_is_too_much_is_told_in_few_words(wrong: Pipeline) -> None:
    [problem, *_] = problems(wrong)
    assert len(problem) < 300
