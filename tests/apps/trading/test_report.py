"""The tables and the plots, of runs that were made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.figure import Figure

from recado.apps.trading.figures import Figures, TransportKind
from recado.apps.trading.measurement import AskTiming, RunSummary
from recado.apps.trading.plots import draw_figures
from recado.apps.trading.published_figures import WIRED, WIRELESS
from recado.apps.trading.report import Report
from recado.apps.trading.tables import FigureTable, TableLine, format_table
from tests.apps.trading.stage import archive_of, asks_of, run_of

TCP, AMQP = TransportKind.TCP, TransportKind.AMQP
PNG = b"\x89PNG\r\n"
Lines = dict[str, dict[int, float]]
"""By label, asks per second by number of clients."""


def told(*which: tuple[TransportKind, str | None, int, int, int]) -> list[AskTiming | RunSummary]:
    """Runs by transport, broker, latency in µs, clients, and ns of an ask."""
    found: list[AskTiming | RunSummary] = []
    for number, (transport, broker, latency_us, clients, took) in enumerate(which):
        name = f"run-{number}"
        found += asks_of(name, 40, took, clients)
        found.append(
            run_of(
                name,
                transport=transport,
                broker=broker,
                latency_us=latency_us,
                clients=clients,
                asks=40,
            )
        )
    return found


@pytest.fixture
def report(tmp_path: Path) -> Report:
    both = told(
        (TCP, None, 0, 1, 1_000_000),
        (AMQP, "recado", 0, 1, 1_500_000),
        (AMQP, "rabbitmq", 0, 1, 3_000_000),
        (TCP, None, 0, 2, 1_200_000),
        (AMQP, "recado", 0, 2, 1_200_000),
        (TCP, None, 2000, 1, 3_000_000),
        (AMQP, "recado", 2000, 1, 6_000_000),
        (TCP, None, 500, 1, 1_500_000),
        (TCP, None, 0, 1, 9_000_000),
    )
    archive_of(tmp_path, both)
    return Report.from_archive(tmp_path)


def test_a_table_for_each_latency(report: Report) -> None:
    assert [(table.name, table.latency_us) for table in report.tables] == [
        ("Table 7.1", 0),
        ("Table", 500),
        ("Table 7.2", 2000),
    ]


def test_point_to_point_first_and_each_broker_beside_it(report: Report) -> None:
    first = report.tables[0]
    assert [(line.clients, line.series, line.is_difference) for line in first.lines] == [
        (1, "tcp", False),
        (1, "amqp, recado", False),
        (1, "amqp, recado", True),
        (1, "amqp, rabbitmq", False),
        (1, "amqp, rabbitmq", True),
        (2, "tcp", False),
        (2, "amqp, recado", False),
        (2, "amqp, recado", True),
    ]
    tcp, _, recado, _, rabbitmq, *_ = first.lines
    assert tcp.measured.mean == pytest.approx(1_019.5)  # the run of 9 ms was not chosen
    assert rabbitmq.measured.mean == pytest.approx(100 * 2_000 / 1_019.5)
    assert recado.measured.mean == pytest.approx(100 * 500 / 1_019.5)
    assert tcp.published == WIRED[TCP, 1]
    assert recado.published == WIRED[AMQP, 1].percent_above(WIRED[TCP, 1])


def test_the_text(report: Report) -> None:
    text = report.text()
    lines = text.splitlines()
    assert lines[0] == (
        "Table 7.1: no latency added; times of an ask in µs; the best of 2 runs by its mean"
    )
    words = "1 tcp 981 1,020 1,010 1,020 1,029 1,037 0.04 │ 501 1,995 1,364 1,433 1,968 3,266 59.85"
    assert " ".join(lines[4].split()) == words
    assert " ".join(lines[6].split()).startswith("difference -32.")
    assert " ".join(lines[6].split("│")[1].split()).startswith("-47.5 % +90.3 % +140.7 %")
    assert max(map(len, lines)) <= 160
    assert "Thadeu de Russo e Carmo: Uso do padrão AMQP" in lines[-1]


def test_processor_time_is_told_for_an_ask(report: Report) -> None:
    at = report.text().index("Processor time of an ask")
    heading, *rows = report.text()[at:].splitlines()[2:]
    assert " ".join(heading.split()) == "clients transport latency broker clients server all"
    assert "75,000" in rows[0]  # 3 s of the broker for 40 asks
    assert rows[0].split()[-1] == "150,000"


def test_the_json_has_every_figure(report: Report) -> None:
    found = msgspec.json.decode(msgspec.json.encode(report.as_json()))
    line = found["tables"][0]["lines"][0]
    assert (line["clients"], line["series"], line["is_difference"]) == (1, "tcp", False)
    assert line["published"]["mean"] == 1995
    assert len(found["runs"]) == 8
    assert found["runs"][0]["figures"]["mean"] == pytest.approx(1_019.5)


def rate(took: int, clients: int = 1) -> float:
    """Of 40 `asks_of`: how many in a second, until the last client is done."""
    shares = [range(client, 40, clients) for client in range(clients)]
    return 40e9 / max(sum(took + 1000 * number for number in share) for share in shares)


def published(table: dict[tuple[TransportKind, int], Figures]) -> Lines:
    names = {"Netty": TCP, "AMQP, RabbitMQ": AMQP}
    return {
        name: {clients: row.rate for (each, clients), row in table.items() if each is transport}
        for name, transport in names.items()
    }


def suffixed(lines: Lines, suffix: str) -> Lines:
    return {label + suffix: points for label, points in lines.items()}


LOW: Lines = {
    "tcp": {1: rate(1_000_000), 2: rate(1_200_000, 2)},
    "amqp, recado": {1: rate(1_500_000), 2: rate(1_200_000, 2)},
    "amqp, rabbitmq": {1: rate(3_000_000)},
}
HIGH: Lines = {"tcp": {1: rate(3_000_000)}, "amqp, recado": {1: rate(6_000_000)}}
PLOTS: dict[str, tuple[str, str, Lines, str, Lines]] = {
    "figure-7.2.png": (
        "Figure 7.2: asks per second",
        *("recado, no latency added", LOW),
        *("Carmo 2012, wired", published(WIRED)),
    ),
    "figure-7.3.png": (
        "Figure 7.3: asks per second, with latency",
        *("recado, round trips 2 ms longer", HIGH),
        *("Carmo 2012, wireless", published(WIRELESS)),
    ),
    "figure-7.4.png": (
        "Figure 7.4: low and high latency",
        "recado, no latency added, and round trips 2 ms longer",
        suffixed(LOW, ", 0 ms") | suffixed(HIGH, ", 2 ms"),
        "Carmo 2012, both networks",
        suffixed(published(WIRED), ", wired") | suffixed(published(WIRELESS), ", wireless"),
    ),
}


def test_the_plots_show_what_was_measured_beside_what_was_published(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: dict[str, Any] = {}  # by file, before they become dots
    save = Figure.savefig

    def keep_and_save(figure: Figure, file: Path, **options: Any) -> None:
        figures[file.name] = figure
        save(figure, file, **options)

    monkeypatch.setattr(Figure, "savefig", keep_and_save)
    drawn = draw_figures(report.by_latency, tmp_path / "plots")
    assert [file.name for file in drawn] == [*figures] == [*PLOTS]
    assert all(file.read_bytes().startswith(PNG) for file in drawn)
    for name, (headline, title, ours, their_title, theirs) in PLOTS.items():
        assert figures[name].get_suptitle() == headline
        left, right = figures[name].axes
        assert left.get_ylabel() == "asks per second"
        for axes, heading, lines in ((left, title, ours), (right, their_title, theirs)):
            assert axes.get_title("left") == heading
            assert axes.get_xlabel() == "clients"
            assert [text.get_text() for text in axes.get_legend().get_texts()] == [*lines]
            shown = {line.get_label(): dict(line.get_xydata()) for line in axes.get_lines()}
            assert shown.keys() == lines.keys()
            for label, points in lines.items():
                assert shown[label] == pytest.approx(points)


def test_without_latency_there_is_one_plot(tmp_path: Path) -> None:
    archive_of(tmp_path, told((TCP, None, 0, 1, 1_000_000)))
    report = Report.from_archive(tmp_path)
    assert [table.name for table in report.tables] == ["Table 7.1"]
    assert "one run" in report.text()
    assert [file.name for file in draw_figures(report.by_latency, tmp_path)] == ["figure-7.2.png"]


def test_a_run_with_a_gap_is_left_out_of_it_and_told(tmp_path: Path) -> None:
    gap: list[AskTiming | RunSummary] = [*asks_of("gap", 29), run_of("gap", asks=30)]
    archive_of(tmp_path, gap + told((TCP, None, 0, 1, 1_000_000)))
    report = Report.from_archive(tmp_path)
    assert [table.name for table in report.tables] == ["Table 7.1"]
    said = "of the 30 asks of run gap the archive has 29"
    assert f"Left out: {said}" in report.text()
    assert report.as_json()["left_out"] == [said]


def test_of_nothing(tmp_path: Path) -> None:
    archive_of(tmp_path, [])
    report = Report.from_archive(tmp_path)
    assert report.tables == []
    assert draw_figures(report.by_latency, tmp_path) == []


@pytest.mark.parametrize("percent", [-99.9, 12.3, 999.9, 1000.0, 12_345.6, 1_234_567.8])
def test_columns_stay_apart_however_large_a_difference_is(percent: float) -> None:
    large = Figures(*[percent] * len(msgspec.structs.fields(Figures)))
    line = TableLine(1, "amqp", large, large, is_difference=True)
    *_, row = format_table(FigureTable("Table 7.1", 0, [line]), 1).splitlines()
    ours, theirs = row.split("difference")[1].split("│")
    count = len(msgspec.structs.fields(Figures))
    for side in (ours, theirs):
        figures = [float(text.replace(",", "")) for text in side.split("%")[:-1]]
        assert figures == pytest.approx([percent] * count, abs=0.51)
        assert (
            len(side.split()) == 2 * count
        )  # each is a figure and its sign, and nothing runs together
