"""`recado pipeline check` reports every mistake of a file at once, and says if Spark did not check the SQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recado.cli import main
from recado.pipeline.java import JavaNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN = """
name = "broken"
checkpoint = "state"
[sources.orders]
format = "recado"
pth = "archive"
[sources.names]
format = "parquet"
path = "names"
[sources.shapeless]
path = "x"
[[steps]]
step = "fliter"
wher = "length(body) > > 3"
[[steps]]
step = "enrch"
table = "names"
on = "key"
missing = "perhaps"
[[steps]]
step = "translate"
select = ["bodie"]
slect = ["body"]
[sinks.out]
format = "parquet"
path = "out"
partitonBy = "day"
evolv = "true"
"""
IN_THE_FILE = [
    "source shapeless: the key format is missing",
    "step 1: unknown step 'fliter'; did you mean filter?",
    "step 1 (filter): unknown option wher; did you mean where?",
    "step 2: unknown step 'enrch'; did you mean enrich?",
    "step 2 (enrich): on: expected 'array', got 'str'",
    "step 2 (enrich): missing: invalid enum value 'perhaps'",
    "step 3 (translate): unknown option slect; did you mean select?",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pipeline_of(where: str) -> str:
    return (
        'name = "x"\ncheckpoint = "state"\n[sources.a]\nformat = "recado"\npath = "archive"\n'
        f'[[steps]]\nstep = "filter"\nwhere = "{where}"\n'
        '[sinks.out]\nformat = "parquet"\npath = "out"\n'
        '[sinks.dead_letters]\nformat = "parquet"\npath = "dead"\n'
    )


def test_a_misspelt_step_hides_no_other_mistake(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.toml").write_text(BROKEN)
    assert main(["pipeline", "check", "broken.toml", "--no-spark"]) == 2
    lines = capsys.readouterr().err.replace("recado: ", "").splitlines()
    told = [line.removeprefix("broken.toml: ") for line in lines]
    assert told[: len(IN_THE_FILE)] == IN_THE_FILE
    assert [each for each in told if "has no option 'pth'; did you mean path?" in each]
    assert [
        each for each in told if "has no option 'partitonBy'; did you mean partitionBy?" in each
    ]
    assert [each for each in told if "has no option 'evolv'; did you mean evolve?" in each]
    assert (
        "step 3 (translate): there is no field bodie; did you mean body?" not in told
    )  # step 2 may bring it
    assert main(["pipeline", "run", "broken.toml"]) == 2
    assert capsys.readouterr().err.replace("recado: ", "").splitlines() == lines


def test_a_file_that_is_no_pipeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "nope.py"]) == 2
    said = capsys.readouterr().err
    hint = "write FILE.toml, FILE.yaml or MODULE:NAME"
    assert said == f"recado: nope.py: not the name of a pipeline; {hint}\n"


def test_a_missing_package_is_named(folder: Path) -> None:
    Path("x.toml").write_text(pipeline_of("true"))
    code = (
        "import sys; sys.modules['pyarrow'] = None; from recado.cli import main; "
        "sys.exit(main(['pipeline', 'check', 'x.toml', '--no-spark']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.stderr == "recado: missing package pyarrow: pip install 'recado[spark,lake]'\n"
    assert ended.returncode == 1


def test_without_spark_it_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.toml").write_text(pipeline_of("length(body) > > 3"))
    assert main(["pipeline", "check", "x.toml", "--no-spark"]) == 0
    assert capsys.readouterr().out == (
        "x: 1 step, no errors; syntax, functions and types of SQL were not checked: --no-spark\n"
    )


def test_without_java_it_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java(*_: object, **__: object) -> None:
        raise JavaNotFoundError("Spark needs a Java")

    monkeypatch.setattr("recado.pipeline.session.spark_session", no_java)
    Path("x.toml").write_text(pipeline_of("length(body) > > 3"))
    assert main(["pipeline", "check", "x.toml"]) == 0
    assert capsys.readouterr().out.endswith("SQL were not checked: Spark needs a Java\n")
    Path("x.toml").write_text(
        pipeline_of("x")
        .replace("where", "selector")
        .replace('"x"\n[sinks', '"priority = 1"\n[sinks')
    )
    assert main(["pipeline", "check", "x.toml"]) == 0
    assert capsys.readouterr().out == "x: 1 step, no errors\n"


@pytest.mark.spark
def test_sql_is_checked_by_spark(
    spark: SparkSession,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recado.pipeline.session.spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    Path("x.toml").write_text(pipeline_of("length(body) > > 3"))
    for verb in ("check", "explain", "run"):
        assert main(["pipeline", verb, "x.toml"]) == 2
        told = capfd.readouterr()
        assert told.out == ""
        assert told.err == (
            "recado: x: step 1 (filter): Syntax error at or near '>' (line 1, pos 15) in 'length(body) > > 3'\n"
        )
    Path("x.toml").write_text(pipeline_of("length(body) > 3"))
    assert main(["pipeline", "check", "x.toml"]) == 0
    assert capfd.readouterr().out == "x: 1 step, no errors\n"
    assert main(["pipeline", "explain", "x.toml"]) == 0
    assert "step 1 (filter): where=" in capfd.readouterr().out
