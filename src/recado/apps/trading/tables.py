"""The tables of the dissertation's chapter 7, with our figures and its own side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import astuple

from . import published
from .archived import Best, Measured, Series
from .figures import Figures, Transport
from .plan import OWN_BROKER

HEADINGS: Final = ("asks/s", "mean", "25 %", "50 %", "75 %", "95 %", "s")
WIDTH: Final = 9
LABEL: Final = 20


@dataclass(frozen=True)
class Line:
    """One line of a table: what was measured, or a difference in percent."""

    clients: int
    series: str
    ours: Figures
    theirs: Figures | None
    is_difference: bool = False
    """From point to point."""


@dataclass(frozen=True)
class Table:
    name: str
    latency_us: int
    lines: Sequence[Line]


def tables_of(by_latency: dict[int, Best]) -> list[Table]:
    """7.1 is the one without added latency, 7.2 the one with most; others in between have no number there."""
    found = []
    most = max(by_latency, default=0)
    for latency, best in by_latency.items():
        if not latency:
            name, theirs = "Table 7.1", published.WIRED
        else:
            name, theirs = "Table 7.2" if latency == most else "Table", published.WIRELESS
        found.append(Table(name, latency, list(lines_of(best, theirs))))
    return found


def lines_of(best: Best, theirs: published.Table) -> Iterator[Line]:
    for clients in sorted({clients for _, clients in best}):
        series = sorted((each for each, n in best if n == clients), key=in_order)
        ours = {each: best[each, clients].figures for each in series}
        point_to_point = next((ours[each] for each in series if each.is_point_to_point), None)
        tcp, amqp = (theirs.get((each, clients)) for each in (Transport.TCP, Transport.AMQP))
        for each in series:
            yield Line(clients, each.label, ours[each], tcp if each.is_point_to_point else amqp)
            if point_to_point is not None and not each.is_point_to_point:
                published_difference = None if tcp is None or amqp is None else amqp.beside(tcp)
                difference = ours[each].beside(point_to_point)
                yield Line(clients, each.label, difference, published_difference, True)


def in_order(series: Series) -> tuple[bool, bool, str]:
    """Point to point first, then our own broker."""
    return not series.is_point_to_point, series.broker != OWN_BROKER, series.broker


def text_of(table: Table, runs: int) -> str:
    rows = [*heading(table, runs)]
    before = None
    for line in table.lines:
        clients = "" if line.clients == before else str(line.clients)
        before = line.clients
        label = f"{clients:>7}  {'difference' if line.is_difference else line.series:{LABEL}}"
        rows.append(f"{label}{cells(line, line.ours)}  │{cells(line, line.theirs)}".rstrip())
    return "\n".join(rows) + "\n"


def heading(table: Table, runs: int) -> Iterator[str]:
    added = (
        f"round trips {milliseconds(table.latency_us)} longer"
        if table.latency_us
        else "no latency added"
    )
    chosen = f"the best of {runs} runs by its mean" if runs > 1 else "one run"
    yield f"{table.name}: {added}; times of an ask in µs; {chosen}"
    yield ""
    words = "".join(f"{each:>{WIDTH}}" for each in HEADINGS)
    indent = " " * (9 + LABEL)
    yield f"{indent}{'recado':>{WIDTH}}{'':{WIDTH * 6}}  │{'Carmo 2012':>{WIDTH + 2}}"
    yield f"clients  {'transport':{LABEL}}{words}  │{words}"


def cells(line: Line, figures: Figures | None) -> str:
    if figures is None:
        return ""
    *per_ask, seconds = astuple(figures)
    if line.is_difference:
        texts = [percent(each) for each in (*per_ask, seconds)]
    else:
        texts = [*(f"{each:,.0f}" for each in per_ask), f"{seconds:.2f}"]
    # A space before each, so that columns stay apart when a figure is wider than its column.
    return "".join(f" {text:>{WIDTH - 1}}" for text in texts)


def percent(difference: float) -> str:
    """With one decimal where the column is wide enough."""
    text = f"{difference:+.1f} %"
    return text if len(text) < WIDTH else f"{difference:+,.0f} %"


def milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1000:g} ms"


def processor_text(chosen: Iterable[Measured]) -> str:
    """µs of processor time for an ask, by process."""
    rows = sorted(
        chosen,
        key=lambda each: (
            each.run.latency_us,
            each.run.clients,
            in_order(Series.of(each.run)),
        ),
    )
    kinds = sorted({kind for each in rows for kind in each.run.processor})
    lines = ["Processor time of an ask in µs, by process", ""]
    headings = "".join(f"{kind:>{WIDTH}}" for kind in (*kinds, "all"))
    lines.append(f"clients  {'transport':{LABEL}}{'latency':>{WIDTH}}{headings}")
    for each in rows:
        used = [each.run.processor.get(kind) for kind in kinds]
        shown = [None if u is None else u * 1e6 / each.run.asks for u in used]
        total = sum(value for value in shown if value is not None)
        values = "".join(
            f"{'':{WIDTH}}" if v is None else f"{v:{WIDTH},.0f}" for v in (*shown, total)
        )
        latency = milliseconds(each.run.latency_us)
        label = Series.of(each.run).label
        lines.append(f"{each.run.clients:>7}  {label:{LABEL}}{latency:>{WIDTH}}{values}")
    return "\n".join(lines) + "\n"
