"""The tables of chapter 7 of the dissertation, with our figures and the published ones side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import astuple

from . import published_figures
from .figures import Figures, TransportKind
from .plan import OWN_BROKER_NAME
from .results import BestRuns, RunResult, Series

HEADINGS: Final = ("asks/s", "mean", "25 %", "50 %", "75 %", "95 %", "s")
_CELL_CHAR_COUNT: Final = 9
_LABEL_CHAR_COUNT: Final = 20


@dataclass(frozen=True)
class TableLine:
    """One line of a table: figures, or their difference in percent."""

    clients: int
    series: str
    measured: Figures
    published: Figures | None
    is_difference: bool = False
    """Whether the figures are differences to TCP, in percent."""


@dataclass(frozen=True)
class FigureTable:
    name: str
    latency_us: int
    lines: Sequence[TableLine]


def create_tables(by_latency: dict[int, BestRuns]) -> list[FigureTable]:
    """Create a table for each latency: 7.1 without added latency, 7.2 with the highest one; those between have
    no number."""
    tables = []
    highest = max(by_latency, default=0)
    for latency, best in by_latency.items():
        if not latency:
            name, published = "Table 7.1", published_figures.WIRED
        else:
            name, published = (
                "Table 7.2" if latency == highest else "Table",
                published_figures.WIRELESS,
            )
        tables.append(FigureTable(name, latency, list(create_lines(best, published))))
    return tables


def create_lines(
    best: BestRuns, published: published_figures.PublishedTable
) -> Iterator[TableLine]:
    for clients in sorted({clients for _, clients in best}):
        series = sorted((each for each, n in best if n == clients), key=sort_key)
        measured = {each: best[each, clients].figures for each in series}
        point_to_point = next((measured[each] for each in series if each.is_point_to_point), None)
        tcp, amqp = (
            published.get((each, clients)) for each in (TransportKind.TCP, TransportKind.AMQP)
        )
        for each in series:
            yield TableLine(
                clients, each.label, measured[each], tcp if each.is_point_to_point else amqp
            )
            if point_to_point is not None and not each.is_point_to_point:
                published_difference = (
                    None if tcp is None or amqp is None else amqp.percent_above(tcp)
                )
                difference = measured[each].percent_above(point_to_point)
                yield TableLine(clients, each.label, difference, published_difference, True)


def sort_key(series: Series) -> tuple[bool, bool, str]:
    """Sort TCP first, then our own broker."""
    return not series.is_point_to_point, series.broker != OWN_BROKER_NAME, series.broker


def format_table(table: FigureTable, runs: int) -> str:
    rows = [*format_heading(table, runs)]
    before = None
    for line in table.lines:
        clients = "" if line.clients == before else str(line.clients)
        before = line.clients
        label = f"{clients:>7}  {'difference' if line.is_difference else line.series:{_LABEL_CHAR_COUNT}}"
        rows.append(
            f"{label}{format_cells(line, line.measured)}  │{format_cells(line, line.published)}".rstrip()
        )
    return "\n".join(rows) + "\n"


def format_heading(table: FigureTable, runs: int) -> Iterator[str]:
    added = (
        f"round trips {format_milliseconds(table.latency_us)} longer"
        if table.latency_us
        else "no latency added"
    )
    chosen = f"the best of {runs} runs by its mean" if runs > 1 else "one run"
    yield f"{table.name}: {added}; times of an ask in µs; {chosen}"
    yield ""
    words = "".join(f"{each:>{_CELL_CHAR_COUNT}}" for each in HEADINGS)
    indent = " " * (9 + _LABEL_CHAR_COUNT)
    yield f"{indent}{'recado':>{_CELL_CHAR_COUNT}}{'':{_CELL_CHAR_COUNT * 6}}  │{'Carmo 2012':>{_CELL_CHAR_COUNT + 2}}"
    yield f"clients  {'transport':{_LABEL_CHAR_COUNT}}{words}  │{words}"


def format_cells(line: TableLine, figures: Figures | None) -> str:
    if figures is None:
        return ""
    *per_ask, seconds = astuple(figures)
    if line.is_difference:
        texts = [format_percent(each) for each in (*per_ask, seconds)]
    else:
        texts = [*(f"{each:,.0f}" for each in per_ask), f"{seconds:.2f}"]
    # A space before each figure separates columns, also if a figure is too wide.
    return "".join(f" {text:>{_CELL_CHAR_COUNT - 1}}" for text in texts)


def format_percent(difference: float) -> str:
    """Format a percentage, with one decimal if the column is wide enough."""
    text = f"{difference:+.1f} %"
    return text if len(text) < _CELL_CHAR_COUNT else f"{difference:+,.0f} %"


def format_milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1000:g} ms"


def format_cpu_times(chosen: Iterable[RunResult]) -> str:
    """Format the table of CPU time per ask, in µs, by process."""
    rows = sorted(
        chosen,
        key=lambda each: (
            each.run.latency_us,
            each.run.clients,
            sort_key(Series.of(each.run)),
        ),
    )
    kinds = sorted({kind for each in rows for kind in each.run.processor})
    lines = ["Processor time of an ask in µs, by process", ""]
    headings = "".join(f"{kind:>{_CELL_CHAR_COUNT}}" for kind in (*kinds, "all"))
    lines.append(
        f"clients  {'transport':{_LABEL_CHAR_COUNT}}{'latency':>{_CELL_CHAR_COUNT}}{headings}"
    )
    for each in rows:
        used = [each.run.processor.get(kind) for kind in kinds]
        shown = [None if u is None else u * 1e6 / each.run.asks for u in used]
        total = sum(value for value in shown if value is not None)
        values = "".join(
            f"{'':{_CELL_CHAR_COUNT}}" if v is None else f"{v:{_CELL_CHAR_COUNT},.0f}"
            for v in (*shown, total)
        )
        latency = format_milliseconds(each.run.latency_us)
        label = Series.of(each.run).label
        lines.append(
            f"{each.run.clients:>7}  {label:{_LABEL_CHAR_COUNT}}{latency:>{_CELL_CHAR_COUNT}}{values}"
        )
    return "\n".join(lines) + "\n"
