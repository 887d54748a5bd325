"""The tables of the slides, with the figures of both brokers beside them, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.aims import Result
from bench.picture import circumstances
from bench.plan import Plan
from bench.population import clients, consumers
from bench.population.published import CAPTURES, CONSUMERS_REFUSED_COUNT
from bench.report import detail, significant
from bench.scenario import Side

NOT_SHOWN = "–"
Row = Sequence[str]


class Measured:
    """Finds figures by the names of their scenarios."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = {result.scenario.name: result for result in results}

    def counts_of(self, start: str, counts: Sequence[int]) -> list[int]:
        """Return the counts with which this figure was measured."""
        return [
            count for count in counts if self.figure(f"{start}-{count}", Side.RECADO) is not None
        ]

    def figure(self, name: str, side: Side) -> float | None:
        """Return the median of a scenario; None if it was not measured."""
        result = self._results.get(name)
        if result is None:
            return None
        return result.recado if side is Side.RECADO else result.peer_value

    def detail(self, name: str, side: Side, key: str) -> float | None:
        """Return the median of a figure that was measured with that of a scenario."""
        result = self._results.get(name)
        values = detail(result.samples[side], key) if result else []
        return median(values) if values else None


def write(peer: str, results: Sequence[Result], plan: Plan, file: Path) -> Path:
    measured = Measured(results)
    lines = [circumstances(plan), ""]
    lines += section("Arriving clients, as in the slides", arriving_table(measured, peer))
    lines += section("Steady clients", steady_table(measured, peer))
    lines += section("Consumers on one queue", consumers_table(measured, peer))
    file.write_text("\n".join(lines))
    return file


def section(title: str, rows: Iterator[Row]) -> list[str]:
    heading, *body = rows
    rule = ["---", *("---:" for _ in heading[1:])]
    return [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in (heading, rule, *body)), ""]


def arriving_table(measured: Measured, peer: str) -> Iterator[Row]:
    yield ("clients", "figure of the whole run", "slides", "recado", peer)
    for count in measured.counts_of("arriving-cpu", clients.POPULATIONS):
        name = clients.name_of(clients.ARRIVING, clients.CPU, count)
        published = CAPTURES.get(count)
        rows: tuple[tuple[str, str, float | None, Callable[[float | None], str]], ...] = (
            ("seconds", "seconds", published.seconds if published else None, number),
            ("bytes", "bytes", published.bytes if published else None, whole),
            ("packets", "packets", published.packets if published else None, whole),
            ("CPU, % of a core", "cpu_percent", None, number),
            ("memory, MB", "megabytes", None, number),
        )
        for title, key, theirs, show in rows:
            ours = (show(measured.detail(name, side, key)) for side in Side)
            yield (f"{count:,}", title, show(theirs), *ours)


def steady_table(measured: Measured, peer: str) -> Iterator[Row]:
    figures = (
        ("CPU, % of a core", clients.CPU, number),
        ("memory, MB", clients.MEMORY, number),
        ("packets/s", clients.PACKETS, whole),
        ("bytes/s", clients.BYTES, whole),
    )
    sides = {Side.RECADO: "recado", Side.PEER: peer.split()[0]}
    yield ("clients", *(f"{title}: {side}" for title, _, _ in figures for side in sides.values()))
    for count in measured.counts_of("steady-cpu", clients.POPULATIONS):
        cells = []
        for _, figure, show in figures:
            is_silent = count == 0 and figure in (clients.PACKETS, clients.BYTES)
            name = clients.name_of(clients.STEADY, figure, count)
            cells += ["0" if is_silent else show(measured.figure(name, side)) for side in sides]
        yield (f"{count:,}", *cells)


def consumers_table(measured: Measured, peer: str) -> Iterator[Row]:
    other = peer.split()[0]
    figures = (
        ("ms until all are there", "join", number),
        ("CPU µs/message", "cpu", number),
        ("spread", "spread", whole),
    )
    yield (
        "consumers",
        "slides",
        *(f"{title}: {side}" for title, _, _ in figures for side in ("recado", other)),
    )
    for count in measured.counts_of("consumers-cpu", consumers.COUNTS):
        cells = []
        for _, figure, show in figures:
            name = f"consumers-{figure}-{count}"
            cells += [show(measured.figure(name, side)) for side in Side]
        yield (f"{count:,}", verdict_of_slides(count), *cells)


def verdict_of_slides(count: int) -> str:
    if count >= CONSUMERS_REFUSED_COUNT:
        return "not supported"
    return "supported" if count == consumers.COUNTS[0] else "not always"


def number(value: float | None) -> str:
    """Return about three significant digits, with separators of thousands."""
    if value is None:
        return NOT_SHOWN
    return f"{value:,.0f}" if value >= 100 else significant(value)


def whole(value: float | None) -> str:
    return NOT_SHOWN if value is None else f"{value:,.0f}"
