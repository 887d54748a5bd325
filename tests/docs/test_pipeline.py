"""The page docs/pipeline.md: its example runs, its file is a pipeline that nothing is wrong with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from recado.pipeline.definition import check, load
from recado.pipeline.definition.step import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_example(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, object] = {"FOLDER": str(tmp_path)}
    for code in blocks("python"):
        exec(compile(code, PAGE.name, "exec"), names)
    assert names["spark"] is spark


def test_the_file(tmp_path: Path) -> None:
    for text in blocks("toml-pipeline"):
        (tmp_path / "dear.toml").write_text(text)
        assert check(load(tmp_path / "dear.toml")).pipeline.name == "dear"


def test_all_options_of_all_steps_are_told() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ", PAGE.read_text(), re.MULTILINE)
    told = {step: set(re.findall(r"`(\w+)`", options)) for step, options in rows if step in STEPS}
    assert told == {
        step: {field.name for field in msgspec.structs.fields(kind)} - {"name"}
        for step, kind in STEPS.items()
    }
