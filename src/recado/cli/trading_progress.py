"""Progress of `recado trading run`: a bar on a terminal with rich, otherwise one line per run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from recado.apps.trading.benchmark import BenchmarkListener
from recado.apps.trading.measurement import RunSummary
from recado.apps.trading.plan import BenchmarkPlan, Trial


@contextmanager
def show_progress(plan: BenchmarkPlan, *, as_json: bool) -> Iterator[BenchmarkListener]:
    if as_json:
        yield JsonProgress()
        return
    try:
        from rich.console import Console
    except ImportError:
        yield LineProgress(len(plan))
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineProgress(len(plan))
        return
    with BarProgress(console, plan) as bar:
        yield bar


class JsonProgress(BenchmarkListener):
    """Prints the published result of each run."""

    def run_finished(self, run: RunSummary) -> None:
        print(msgspec.json.encode(run).decode(), flush=True)


class LineProgress(BenchmarkListener):
    def __init__(self, runs: int) -> None:
        self._runs = runs

    def run_started(self, number: int, trial: Trial) -> None:
        print(f"run {number} of {self._runs}: {trial.label}", file=sys.stderr, flush=True)


class BarProgress(BenchmarkListener):
    """Shows the asks of all runs and the current run."""

    def __init__(self, console: object, plan: BenchmarkPlan) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        assert isinstance(console, Console)
        self._runs = len(plan)
        self._before = 0
        self._asks = plan.asks
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("", total=plan.asks * self._runs)

    def __enter__(self) -> BarProgress:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def run_started(self, number: int, trial: Trial) -> None:
        self._before = self._asks * (number - 1)
        description = f"run {number} of {self._runs}: {trial.label}"
        self._progress.update(self._task, description=description, completed=self._before)

    def asks_completed(self, count: int) -> None:
        self._progress.update(self._task, completed=self._before + count)

    def run_finished(self, run: RunSummary) -> None:
        self._progress.update(self._task, completed=self._before + run.asks)
