"""Types of `recado.pipeline`."""

from pathlib import Path
from typing import assert_type

from recado.pipeline import InvalidPipelineError, Pipeline, Problem, check, load


def program(folder: Path) -> None:
    pipeline = load(folder / "bars.toml")
    assert_type(pipeline, Pipeline)
    assert_type(check(pipeline).pipeline, Pipeline)
    assert_type(pipeline.filter("price > 10"), Pipeline)

    load(5)  # type: ignore[arg-type]
    check("bars.toml")  # type: ignore[arg-type]


def errors(error: InvalidPipelineError) -> None:
    assert_type(error.problems, tuple[Problem, ...])
