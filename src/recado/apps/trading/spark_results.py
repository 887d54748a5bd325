"""Compute the results of `results.py` with Spark, for archives that are too large for one machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from recado.feeds.archive.archive import Archive
from recado.pipeline.builtin.percentiles import compute_figures
from recado.pipeline.session import spark_session

from .figures import Figures
from .measurement import RunSummary
from .results import IncompleteRun, RunResult


def load_runs(folder: Path | str) -> list[RunResult | IncompleteRun]:
    """Return all finished runs in the order in which they were stored.

    Raises `ArchiveNotFoundError` if the folder has no archive, and `JavaNotFoundError` without Java.
    """
    with Archive.open(folder):
        pass  # a missing archive is reported without starting Spark
    rows = spark_session("recado trading").read.format("recado").option("path", str(folder)).load()
    found: list[RunResult | IncompleteRun] = []
    for line in compute_figures(rows).collect():
        values = line.asDict()
        run = msgspec.convert(values, RunSummary)
        if values["complete"]:
            found.append(RunResult(run, msgspec.convert(values, Figures)))
        else:
            found.append(IncompleteRun(run, values["counted"], values["different"]))
    return found
