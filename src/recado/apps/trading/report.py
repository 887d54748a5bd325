"""The report: tables, plots and, for programs, the same figures as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from . import published
from .archived import Best, Incomplete, Measured, Series, best_by_latency, finished
from .tables import Table, processor_text, tables_of, text_of


@dataclass(frozen=True)
class Report:
    by_latency: dict[int, Best]
    tables: Sequence[Table]
    runs: int
    """The most that a line was chosen from."""
    left_out: Sequence[Incomplete] = ()

    @classmethod
    def of(cls, folder: Path | str) -> Report:
        """From the archive in a folder; NoArchive."""
        return cls.from_runs(finished(folder))

    @classmethod
    def from_runs(cls, archived: Sequence[Measured | Incomplete]) -> Report:
        found = [each for each in archived if isinstance(each, Measured)]
        left_out = [each for each in archived if isinstance(each, Incomplete)]
        by_latency = best_by_latency(found)
        each = Counter((m.run.latency_us, Series.of(m.run), m.run.clients) for m in found)
        return cls(by_latency, tables_of(by_latency), max(each.values(), default=0), left_out)

    @property
    def chosen(self) -> list[Measured]:
        return [each for best in self.by_latency.values() for each in best.values()]

    def text(self) -> str:
        parts = [text_of(table, self.runs) for table in self.tables]
        parts.append(processor_text(self.chosen))
        parts += [f"Left out: {each}\n" for each in self.left_out]
        parts.append(f"Carmo 2012: {published.CITATION}\n")
        return "\n".join(parts)

    def as_json(self) -> dict[str, object]:
        return {
            "citation": published.CITATION,
            "tables": [
                {
                    "table": table.name,
                    "latency_us": table.latency_us,
                    "lines": [
                        {
                            "clients": line.clients,
                            "series": line.series,
                            "is_difference": line.is_difference,
                            "recado": asdict(line.ours),
                            "published": None if line.theirs is None else asdict(line.theirs),
                        }
                        for line in table.lines
                    ],
                }
                for table in self.tables
            ],
            "left_out": [str(each) for each in self.left_out],
            "runs": [{**asdict(each.run), "figures": asdict(each.figures)} for each in self.chosen],
        }
