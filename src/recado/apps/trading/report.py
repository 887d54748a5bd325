"""The report: tables, plots and, for programs, the same figures as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from . import published_figures
from .results import BestRuns, IncompleteRun, RunResult, Series, best_by_latency, load_runs
from .tables import FigureTable, create_tables, format_cpu_times, format_table


@dataclass(frozen=True)
class Report:
    by_latency: dict[int, BestRuns]
    tables: Sequence[FigureTable]
    runs_per_line: int
    """The largest number of runs that a line was selected from."""
    incomplete_runs: Sequence[IncompleteRun] = ()

    @classmethod
    def from_archive(cls, folder: Path | str) -> Report:
        """Create the report of an archive. Raises `ArchiveNotFoundError` if the folder has none."""
        return cls.from_runs(load_runs(folder))

    @classmethod
    def from_runs(cls, archived: Sequence[RunResult | IncompleteRun]) -> Report:
        """Create the report of loaded runs."""
        results = [run for run in archived if isinstance(run, RunResult)]
        incomplete = [run for run in archived if isinstance(run, IncompleteRun)]
        by_latency = best_by_latency(results)
        runs_per_line = Counter(
            (result.run.latency_us, Series.of(result.run), result.run.clients) for result in results
        )
        tables = create_tables(by_latency)
        return cls(by_latency, tables, max(runs_per_line.values(), default=0), incomplete)

    @property
    def chosen(self) -> list[RunResult]:
        """The runs in the tables."""
        return [each for best in self.by_latency.values() for each in best.values()]

    def text(self) -> str:
        parts = [format_table(table, self.runs_per_line) for table in self.tables]
        parts.append(format_cpu_times(self.chosen))
        parts += [f"Left out: {each}\n" for each in self.incomplete_runs]
        parts.append(f"Carmo 2012: {published_figures.CITATION}\n")
        return "\n".join(parts)

    def as_json(self) -> dict[str, object]:
        return {
            "citation": published_figures.CITATION,
            "tables": [
                {
                    "table": table.name,
                    "latency_us": table.latency_us,
                    "lines": [
                        {
                            "clients": line.clients,
                            "series": line.series,
                            "is_difference": line.is_difference,
                            "recado": asdict(line.measured),
                            "published": None if line.published is None else asdict(line.published),
                        }
                        for line in table.lines
                    ],
                }
                for table in self.tables
            ],
            "left_out": [str(each) for each in self.incomplete_runs],
            "runs": [{**asdict(each.run), "figures": asdict(each.figures)} for each in self.chosen],
        }
