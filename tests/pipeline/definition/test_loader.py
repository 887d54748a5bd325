"""A file and Python define the same pipeline; all problems of a file are reported together with their
location.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from recado.pipeline.definition import Branch, InvalidPipelineError, JsonField, Pipeline, load
from recado.pipeline.definition.step import STEP_CLASSES

KEYS = "name, checkpoint, trigger, dead_letters, status, sources, steps, sinks"
TOML = """
name = "orders"
checkpoint = "state/orders"
trigger = "5 seconds"

[sources.orders]
format = "recado"
path = "archive"
startingOffsets = { orders = 7 }
failOnDataLoss = false

[sources.customers]
format = "parquet"
path = "file:/customers"

[[steps]]
step = "translate"
json = { customer = "long", total = { type = "double?", path = "sum.total" } }
compute = { dear = "total > 100" }

[[steps]]
step = "enrich"
table = "customers"
on = ["customer"]

[[steps]]
step = "route"
name = "by price"
branches = [{ to = "dear", where = "dear" }]

[sinks.dear]
format = "amqp"
url = "amqp://localhost"
exchange = "dear"

[sinks.others]
format = "delta"
path = "lake/others"
partitionBy = ["customer"]
"""
YAML = """
name: orders
checkpoint: state/orders
trigger: 5 seconds
sources:
  orders: {format: recado, path: archive, startingOffsets: {orders: 7}, failOnDataLoss: false}
  customers: {format: parquet, path: "file:/customers"}
steps:
  - step: translate
    json: {customer: long, total: {type: "double?", path: sum.total}}
    compute: {dear: total > 100}
  - {step: enrich, table: customers, on: [customer]}
  - step: route
    name: by price
    branches: [{to: dear, where: dear}]
sinks:
  dear: {format: amqp, url: "amqp://localhost", exchange: dear}
  others: {format: delta, path: lake/others, partitionBy: [customer]}
"""


def in_python(folder: Path) -> Pipeline:
    return (
        Pipeline("orders", checkpoint=str(folder / "state/orders"), trigger="5 seconds")
        .read(
            "orders",
            "recado",
            path=str(folder / "archive"),
            startingOffsets={"orders": 7},
            failOnDataLoss=False,
        )
        .read("customers", "parquet", path="file:/customers")
        .translate(
            json={"customer": "long", "total": JsonField("double?", "sum.total")},
            compute={"dear": "total > 100"},
        )
        .enrich("customers", on=["customer"])
        .route([Branch("dear", where="dear")], name="by price")
        .write("dear", "amqp", url="amqp://localhost", exchange="dear")
        .write("others", "delta", path=str(folder / "lake/others"), partitionBy=["customer"])
    )


@pytest.mark.parametrize(("suffix", "text"), [("toml", TOML), ("yaml", YAML), ("yml", YAML)])
def test_a_file_says_what_python_says(tmp_path: Path, suffix: str, text: str) -> None:
    file = tmp_path / f"orders.{suffix}"
    file.write_text(text)
    assert load(file) == in_python(tmp_path)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "feeds.toml"
    options = 'Path = "a"\nspool = "b"\nconfig = "c"\nwarehouse = "d"\nstaging = "e"\nfeed = "f"'
    file.write_text(f'name = "x"\n[sinks.out]\nformat = "recado"\n{options}')
    found = {**load(file).sinks["out"].options}
    assert found.pop("feed") == "f"
    assert [*found.values()] == [str(tmp_path / name) for name in "abcde"]


def pipeline_for_the_module_test() -> Pipeline:
    return Pipeline("of a module")


def test_a_pipeline_of_a_module() -> None:
    made = load(f"{__name__}:pipeline_for_the_module_test")
    assert made == pipeline_for_the_module_test()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name = 1", ["file: name must be a string"]),
        ("nme = 'x'", ["file: unknown key nme; did you mean name?"]),
        (
            "name = 'x'\n[[step]]\nstep = 'fliter'",
            [
                "file: unknown key step; did you mean steps?",
                "step 1: unknown step 'fliter'; did you mean filter?",
            ],
        ),
        (
            "colour = 'red'\nname = 1",
            [f"file: unknown key colour; available are {KEYS}", "file: name must be a string"],
        ),
        ("name = 'x'\nsteps = 5", ["steps: must be tables; write [[steps]] for each"]),
        (
            "name = 'x'\nsources = 5",
            ["sources: must be tables; write [sources.NAME] for each"],
        ),
        ("name = 'x'\n[sinks]\na = 1", ["sink a: must be a table; write [sinks.a]"]),
        ("name = 'x'\n[sinks.a]", ["sink a: the key format is missing"]),
        (
            "name = 'x'\n[[steps]]\nstep = 'fliter'\n[[steps]]\nwhere = 'x'",
            [
                "step 1: unknown step 'fliter'; did you mean filter?",
                f"step 2: the key step is missing; available are {', '.join(STEP_CLASSES)}",
            ],
        ),
        (
            "name = 'x'\n[[steps]]\nstep = 'filter'\nwhen = 'x'",
            ["step 1 (filter): unknown option when; did you mean where?"],
        ),
        (
            "name = 'x'\n[[steps]]\nstep = 'aggregate'\nby = 'x'\nmeasures = {}",
            ["step 1 (aggregate): by: expected 'array', got 'str'"],
        ),
        (
            "name = 'x'\n[[steps]]\nstep = 'split'",
            ["step 1 (split): the option 'column' is missing"],
        ),
        (
            "name = 'x'\n[sinks.a]\nformat = 'delta'\nevolve = 10:30:00",
            [
                (
                    "sink a: invalid option: "
                    "datetime.time(10, 30) is not a string, number, time, list or table"
                )
            ],
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: list[str]) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(InvalidPipelineError) as refusal:
        load(file)
    assert [str(problem) for problem in refusal.value.problems] == told


BOMB = "a: &a [x, x, x]\n" + "".join(
    f"{one}: &{one} [*{other}, *{other}, *{other}]\n" for other, one in pairwise("abcdefghijklmnop")
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.toml", "= 5"),
        ("x.yaml", "{a: b: c"),
        ("x.yaml", "5"),
        ("x.toml", "a = " + "[" * 10_000),
        ("x.toml", "a = " + "9" * 5_000),
        ("x.yaml", "a: " + "[" * 10_000),
        ("x.yaml", "a: " + "9" * 5_000),
        ("x.yaml", "a: 2027-99-99"),
        ("x.yaml", "a: &a {b: *a}"),
        ("x.yaml", BOMB),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidPipelineError, match=r"file: (not|the file is not) "):
        load(tmp_path / name)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b'name = "\xff"')
    with pytest.raises(InvalidPipelineError, match="not UTF-8: invalid start byte at byte 8"):
        load(file)


def test_two_sinks_of_one_name(tmp_path: Path) -> None:
    """PyYAML takes the last one, and the other would get nothing."""
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: x\nsinks:\n  a: {format: delta, path: b}\n  a: {format: delta, path: c}\n"
    )
    with pytest.raises(InvalidPipelineError, match=r"duplicate key a(.|\n)*line 4, column 3"):
        load(file)


def test_times_are_written_as_the_files_have_them(tmp_path: Path) -> None:
    toml, yaml = tmp_path / "x.toml", tmp_path / "x.yaml"
    toml.write_text(
        "name = 'x'\n[sources.a]\nformat = 'recado'\nstartingTimestamp = 2027-01-15T10:00:00Z\n"
    )
    yaml.write_text(
        "name: x\nsources:\n  a: {format: recado, startingTimestamp: 2027-01-15T10:00:00Z}\n"
    )
    for file in (toml, yaml):
        told = load(file).sources["a"].options["startingTimestamp"]
        assert told == "2027-01-15T10:00:00+00:00"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("orders", "not the name of a pipeline; write FILE.toml, FILE.yaml or MODULE:NAME"),
        ("no.such.module:x", "No module named 'no'"),
        (f"{__name__}:nothing", f"module '{__name__}' has no attribute 'nothing'"),
        ("os:sep", "is a str, not a Pipeline"),
    ],
)
def test_a_location_without_a_pipeline(location: str, message: str) -> None:
    with pytest.raises(InvalidPipelineError) as raised:
        load(location)
    assert str(raised.value) == f"{location}: {message}"
