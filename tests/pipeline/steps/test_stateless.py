"""translate, filter, route, enrich, split, wire_tap, dead_letter: as a batch and as a stream, against Python.

The messages include everything that a step cannot process: each must become a dead letter with its reason, and
no row may be missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recado.pipeline import preview
from recado.pipeline.definition import Branch, InvalidPipelineError, JsonField, Pipeline
from recado.pipeline.runner import cache_tables, run

from .messages import message, reading, rows_of, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES = {"A": "Alfa", "B": "Bravo"}
POISON = {
    3: (b"not JSON", "the body is not JSON"),
    4: (b'{"symbol": "A"} and more', "the body is not JSON"),
    5: (b"\xff\xfe", "the body is not UTF-8"),
    6: (b"[1, 2]", "the body is not a JSON object"),
    7: ({"symbol": "A", "deal": {"price": 3.5}}, "size is missing"),
    8: (
        {"symbol": "A", "size": 3, "deal": {"price": "dear"}},
        'price is not of type double: "dear"',
    ),
    9: ({"symbol": None, "size": 3, "deal": {"price": 3.5}}, "symbol is missing"),
    10: (
        {"symbol": "A", "size": 0, "deal": {"price": 3.5}},
        "evaluation of unit failed: price / size",
    ),
    11: (
        {"symbol": "A", "size": 2**62, "deal": {"price": 1e300}},
        "evaluation of twice failed: size * 4",
    ),
    12: (
        b'{"symbol": "A", "size": 3, "deal": {"price": 1e400}}',
        'price is not a finite number: "Infinity"',
    ),
    13: (b'{"symbol": "A", "size": 3, "deal": {"price": NaN}}', "the body is not JSON"),
    14: (
        {"symbol": "A", "size": 3, "deal": {"price": "NaN"}},
        'price is not a finite number: "NaN"',
    ),
}


def order(number: int) -> Any:
    if number in POISON:
        return POISON[number][0]
    lines = [{"sku": f"s{number}", "n": n} for n in range(number % 4)]
    symbol = "ABC"[number % 3]
    return {"symbol": symbol, "size": number, "deal": {"price": number * 2.5}, "lines": lines}


def pipeline(folder: str, tmp_path: Path) -> Pipeline:
    return (
        reading("orders", folder, tmp_path / "state")
        .read("names", "parquet", path=str(tmp_path / "names.parquet"))
        .translate(
            json={
                "symbol": "string",
                "size": "long",
                "price": JsonField("double", "deal.price"),
                "lines": "array<struct<sku:string,n:int>>?",
            },
            compute={"unit": "price / size", "twice": "size * 4"},
        )
        .wire_tap("tap", selector="headers.n >= 20 AND headers.colour = 'red'")
        .filter(
            selector="(priority IS NULL OR priority < 9) AND key LIKE 'order.%' AND json.size > 1"
        )
        .dead_letter("too dear", where="price > 80")
        .route(
            [Branch("ones", where="routing_key = 'order.1'"), Branch("twos", where="size % 2 = 0")]
        )
        .enrich("names", on=["symbol"])
        .split("lines", index="line")
        .write("out", "parquet", path=str(tmp_path / "out"))
        .write("tap", "parquet", path=str(tmp_path / "tap"))
        .write("ones", "parquet", path=str(tmp_path / "ones"))
        .write("twos", "parquet", path=str(tmp_path / "twos"))
        .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
    )


def expected(numbers: range) -> dict[str, list[Any]]:
    """The same by hand."""
    found: dict[str, list[Any]] = {"out": [], "tap": [], "ones": [], "twos": [], "dead_letters": []}
    for number in numbers:
        if number in POISON:
            found["dead_letters"].append((number, "step 1 (translate)", POISON[number][1]))
            continue
        if number >= 20 and number % 2:
            found["tap"].append(number)
        if (number % 4 and number % 10 >= 9) or number <= 1:
            continue
        if number * 2.5 > 80:
            found["dead_letters"].append((number, "step 4 (dead_letter)", "too dear"))
        elif number % 3 == 1:
            found["ones"].append(number)
        elif number % 2 == 0:
            found["twos"].append(number)
        elif "ABC"[number % 3] not in NAMES:
            reason = "names has no row with the same symbol"
            found["dead_letters"].append((number, "step 6 (enrich)", reason))
        elif not number % 4:
            found["dead_letters"].append((number, "step 7 (split)", "lines is empty"))
        else:
            name = f"m{number}" if number % 2 else f"ana:{number}"
            symbol = "ABC"[number % 3]
            for line in range(number % 4):
                found["out"].append((number, f"{name}#{line}", NAMES[symbol], line, f"s{number}"))
    return {sink: sorted(rows) for sink, rows in found.items()}


def told(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        "out": [
            (row["sequence"], row["message_id"], row["name"], row["line"], row["sku"])
            for row in rows["out"]
        ],
        "dead_letters": [
            (json.loads(row["row"])["sequence"], row["step"], row["reason"])
            for row in rows["dead_letters"]
        ],
    }
    for sink in ("tap", "ones", "twos"):
        found[sink] = [row["sequence"] for row in rows[sink]]
    return {sink: sorted(each) for sink, each in found.items()}


def test_numbers_that_are_not_finite_are_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """JSON has none. Spark reads a number that is too large for a double as infinite."""
    cases = [
        ("double", "1.7976931348623157e308", True),
        ("double", "-1e309", False),
        ("float", "1e38", True),
        ("float", "1e39", False),
        ("array<double>", "[1, null, 2]", True),
        ("array<double>", "[1, 1e400]", False),
        ("array<array<double>>", "[[], [1], [-1e400]]", False),
        ("struct<a:long,b:struct<c:double>>", '{"a": 1, "b": {"c": 1e400}}', False),
        ("struct<a:long,b:double>", '{"a": 1, "b": 2}', True),
        ("map<string,double>", '{"a": 1e400}', False),
        ("string", '"Infinity"', True),
        ("string", "1e400", False),
        ("array<long>", "[1]", True),
    ]
    bodies = [b'{"f%d": %b}' % (at, value.encode()) for at, (_, value, _) in enumerate(cases)]
    messages = [message(at, body) for at, body in enumerate(bodies)]
    defined = (
        reading("numbers", stored(tmp_path / "in", messages), tmp_path / "state")
        .translate(json={f"f{at}": f"{kind}?" for at, (kind, _, _) in enumerate(cases)})
        .write("out", "console")
        .write("dead_letters", "console")
    )
    found = preview(defined, spark)
    reasons = [row.reason for row in found["dead_letters"].collect()]
    refused = [at for at, (_, _, is_finite) in enumerate(cases) if not is_finite]
    assert sorted(row.sequence for row in found["out"].collect()) == [
        at for at in range(len(cases)) if at not in refused
    ]
    assert sorted(reason.partition(":")[0] for reason in reasons) == sorted(
        f"f{at} is not a finite number" for at in refused
    )


def test_a_batch_and_a_stream_give_what_they_should(spark: SparkSession, tmp_path: Path) -> None:
    numbers = range(1, 61)
    messages = [message(number, order(number)) for number in numbers]
    folder = stored(tmp_path / "in", messages)  # one batch: no step remembers another
    pq.write_table(
        pa.table({"symbol": list(NAMES), "name": list(NAMES.values())}), tmp_path / "names.parquet"
    )
    whole = pipeline(folder, tmp_path)
    at_once = {
        sink: [row.asDict(recursive=True) for row in rows.collect()]
        for sink, rows in preview(whole, spark).items()
    }
    assert told(at_once) == expected(numbers)
    report = run(whole, spark)
    in_turn = {
        sink: rows_of(Path(defined.options["path"])) for sink, defined in whole.sinks.items()
    }
    assert told(in_turn) == expected(numbers)
    assert report.batches == 1
    assert report.rows == 60
    assert report.sinks == {sink: len(rows) for sink, rows in in_turn.items()}
    assert report.dead["step 1 (translate)"] == len(POISON)
    dead = {json.loads(row["row"])["sequence"]: row for row in in_turn["dead_letters"]}
    assert dead[5]["body"] == b"\xff\xfe"  # as it came, to be published again
    assert (dead[5]["message_id"], dead[6]["message_id"]) == ("m5", "ana:6")
    assert dict(dead[5]["headers"]) == {
        "n": "5",
        "colour": "red",
        "recado.pipeline": "orders",
        "recado.step": "step 1 (translate)",
        "recado.reason": "the body is not UTF-8",
    }
    assert run(whole, spark).batches == 0  # nothing has come since


def test_bodies_of_another_shape(spark: SparkSession, tmp_path: Path) -> None:
    """Schema drift: a field more, a field less, a field of another type. And columns that become a body."""
    bodies = [
        {"id": 1, "at": "2027-01-15T10:00:00Z", "tags": ["x"]},
        {"id": 2, "at": "2027-01-15T10:00:00Z", "tags": None, "new": 5},
        {"id": "three", "at": "2027-01-15T10:00:00Z"},
        {"id": 4},
        {"id": 5, "at": "yesterday"},
        {"id": "6", "at": "2027-01-15T10:00:00Z", "tags": 7},
    ]
    messages = [message(number, body) for number, body in enumerate(bodies, 1)]
    strict = (
        reading("drift", stored(tmp_path / "in", messages), tmp_path / "state")
        .translate(
            json={"id": "int", "at": "timestamp", "tags": "array<string>?"},
            extra="refuse",
            rename={"feed": "origin"},
            select=["origin", "id", "tags"],
            body=["id", "tags"],
        )
        .write("out", "console")
        .write("dead_letters", "console")
    )
    found = preview(strict, spark)
    (row,) = found["out"].collect()
    assert row.asDict() == {
        "origin": "orders",
        "id": 1,
        "tags": ["x"],
        "body": b'{"id":1,"tags":["x"]}',
    }
    assert {each.reason for each in found["dead_letters"].collect()} == {
        "unexpected field: new",
        'id is not of type int: "three"',
        "at is missing",
        'at is not of type timestamp: "yesterday"',
        "tags is not of type array<string>: 7",
    }


def test_two_columns_may_change_names(spark: SparkSession, tmp_path: Path) -> None:
    swapped = (
        reading("swap", stored(tmp_path / "in", [message(1, {})]), tmp_path / "state")
        .translate(
            rename={"feed": "routing_key", "Routing_Key": "feed"}, select=["feed", "routing_key"]
        )
        .write("out", "console")
    )
    (row,) = preview(swapped, spark)["out"].collect()
    assert row.asDict() == {"feed": "order.1", "routing_key": "orders"}


def test_a_table_is_read_once_and_rows_without_a_key_are_like_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "names.parquet"
    pq.write_table(pa.table({"feed": ["orders", None, None], "x": [1, 2, 3]}), file)
    pipeline = (
        reading("once", stored(tmp_path / "in", [message(1, {})]), tmp_path / "state")
        .read("table", "parquet", path=str(file))
        .enrich("table", on=["feed"], missing="keep")
        .write("out", "console")
    )
    tables = cache_tables(pipeline, spark)
    file.unlink()
    assert tables["table"].count() == 3
    tables["table"].unpersist()


def test_a_table_with_a_key_twice_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"feed": ["orders"] * 2, "x": [1, 2]}), tmp_path / "twice.parquet")
    twice = (
        reading("twice", stored(tmp_path / "in", [message(1, {})]), tmp_path / "state")
        .read("table", "parquet", path=str(tmp_path / "twice.parquet"))
        .enrich("table", on=["feed"], missing="keep")
        .write("out", "console")
    )
    with pytest.raises(
        InvalidPipelineError, match=r"step 1 \(enrich\): table has 2 rows with feed 'orders'"
    ):
        preview(twice, spark)
