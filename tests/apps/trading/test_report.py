"""The tables and the plots, of runs that were made by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from recado.apps.trading.figures import Transport
from recado.apps.trading.measurement import Asked, Run
from recado.apps.trading.plots import draw_all
from recado.apps.trading.published import WIRED
from recado.apps.trading.report import Report
from tests.apps.trading.stage import archive_of, asks_of, run_of

TCP, AMQP = Transport.TCP, Transport.AMQP
PNG = b"\x89PNG\r\n"


def told(*which: tuple[Transport, str | None, int, int, int]) -> list[Asked | Run]:
    """Runs by transport, broker, latency in µs, clients, and ns of an ask."""
    found: list[Asked | Run] = []
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
    return Report.of(tmp_path)


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
    assert tcp.ours.mean == pytest.approx(1_019.5)  # the run of 9 ms was not chosen
    assert rabbitmq.ours.mean == pytest.approx(100 * 2_000 / 1_019.5)
    assert recado.ours.mean == pytest.approx(100 * 500 / 1_019.5)
    assert tcp.theirs == WIRED[TCP, 1]
    assert recado.theirs == WIRED[AMQP, 1].beside(WIRED[TCP, 1])


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


def test_the_plots_of_what_there_is(report: Report, tmp_path: Path) -> None:
    drawn = draw_all(report.by_latency, tmp_path / "plots")
    assert [file.name for file in drawn] == ["figure-7.2.png", "figure-7.3.png", "figure-7.4.png"]
    assert all(file.read_bytes().startswith(PNG) for file in drawn)


def test_without_latency_there_is_one_plot(tmp_path: Path) -> None:
    archive_of(tmp_path, told((TCP, None, 0, 1, 1_000_000)))
    report = Report.of(tmp_path)
    assert [table.name for table in report.tables] == ["Table 7.1"]
    assert "one run" in report.text()
    assert [file.name for file in draw_all(report.by_latency, tmp_path)] == ["figure-7.2.png"]


def test_a_run_with_a_gap_is_left_out_of_it_and_told(tmp_path: Path) -> None:
    gap: list[Asked | Run] = [*asks_of("gap", 29), run_of("gap", asks=30)]
    archive_of(tmp_path, gap + told((TCP, None, 0, 1, 1_000_000)))
    report = Report.of(tmp_path)
    assert [table.name for table in report.tables] == ["Table 7.1"]
    said = "of the 30 asks of run gap the archive has 29"
    assert f"Left out: {said}" in report.text()
    assert report.as_json()["left_out"] == [said]


def test_of_nothing(tmp_path: Path) -> None:
    archive_of(tmp_path, [])
    report = Report.of(tmp_path)
    assert report.tables == []
    assert draw_all(report.by_latency, tmp_path) == []
