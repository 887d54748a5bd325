"""Which Python interpreter Spark's workers run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recado.pipeline.worker_python import worker_python


def told_by(program: str, code: str, environment: dict[str, str]) -> str:
    return subprocess.check_output([program, "-c", code], env=environment, text=True, timeout=60)


def test_it_is_this_one_without_what_spark_puts_before_all_else(tmp_path: Path) -> None:
    program = worker_python("local[2]", {"PYTHONPATH": "/mine/it's"}, tmp_path)
    assert worker_python("local[2]", {"PYTHONPATH": "/mine/it's"}, tmp_path) == program
    code = "import sys; print(sys.executable, '/mine/it\\'s' in sys.path, '/spark.zip' in sys.path)"
    told = told_by(program, code, {"PYTHONPATH": "/spark.zip:/mine/it's"})
    assert told.split() == [sys.executable, "True", "False"]


@pytest.mark.parametrize(
    ("master", "environment"),
    [("spark://other:7077", {}), ("local[*]", {"SPARK_HOME": "/opt/spark"})],
)
def test_elsewhere_it_is_as_ever(tmp_path: Path, master: str, environment: dict[str, str]) -> None:
    assert worker_python(master, environment, tmp_path) == sys.executable
    assert not list(tmp_path.iterdir())


def test_nor_is_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert worker_python("local", {}) == sys.executable


def test_a_folder_that_cannot_be_written_to_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert worker_python("local", {}, tmp_path / "file") == sys.executable
