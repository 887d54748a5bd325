"""The dissertation's numbers: they agree with each other, as printed there."""

from __future__ import annotations

import pytest

from recado.apps.trading.figures import Figures, TransportKind
from recado.apps.trading.published_figures import WIRED, WIRELESS, PublishedTable

CLIENTS = (1, 2, 4, 8, 10, 20, 40, 80)
# Its "variação" of asks per second, mean, and the four percentiles.
DIFFERENCES = [
    (WIRED, 1, (-47.50, 90.33, 140.69, 134.54, 79.73, 39.31)),
    (WIRED, 2, (-40.99, 69.30, 82.71, 87.03, 93.46, 27.90)),
    (WIRED, 4, (-27.31, 37.48, 56.91, 43.58, 51.65, 20.74)),
    (WIRED, 8, (-7.10, 7.60, 8.95, 10.02, 8.91, 4.17)),
    (WIRED, 10, (-7.72, 8.31, 9.76, 17.94, 7.57, 8.08)),
    (WIRED, 20, (-4.15, 4.33, 6.36, 3.30, 7.31, 11.78)),
    (WIRED, 40, (-4.41, 4.64, 5.00, 7.38, 7.23, 9.41)),
    (WIRED, 80, (-5.02, 5.24, 7.10, 7.82, 8.13, 8.63)),
    (WIRELESS, 1, (-34.97, 54.41, 77.09, 68.80, 53.62, 29.52)),
    (WIRELESS, 2, (-55.43, 124.02, 162.23, 162.19, 149.81, 94.31)),
    (WIRELESS, 4, (-61.80, 162.35, 209.28, 197.17, 179.11, 145.07)),
    (WIRELESS, 8, (-59.67, 148.36, 155.68, 161.77, 162.31, 153.05)),
    (WIRELESS, 10, (-56.27, 128.66, 132.81, 134.41, 131.70, 120.79)),
    (WIRELESS, 20, (-42.63, 74.58, 113.07, 105.70, 95.74, 75.82)),
    (WIRELESS, 40, (-35.75, 50.42, 52.30, 56.36, 61.93, 81.60)),
    (WIRELESS, 80, (-29.36, 26.74, 80.41, 98.72, 89.13, 34.25)),
]


@pytest.mark.parametrize(("table", "clients", "difference"), DIFFERENCES)
def test_the_differences_are_those_it_prints(
    table: PublishedTable, clients: int, difference: tuple[float, ...]
) -> None:
    tcp, amqp = (table[transport, clients] for transport in (TransportKind.TCP, TransportKind.AMQP))
    found = amqp.percent_above(tcp)
    computed = (found.rate, found.mean, found.p25, found.p50, found.p75, found.p95)
    assert computed == pytest.approx(difference, abs=0.3)  # it rounded before, and after


@pytest.mark.parametrize("table", [WIRED, WIRELESS])
def test_a_duration_is_that_of_a_clients_asks_one_after_the_other(table: PublishedTable) -> None:
    assert [clients for _, clients in table] == [n for n in CLIENTS for _ in range(2)]
    for (_, clients), row in table.items():
        assert row.seconds == pytest.approx(row.mean * 30_000 / clients / 1e6, rel=0.005)


def test_a_difference_is_in_percent() -> None:
    twice = Figures(200, 2, 4, 6, 8, 10, 3)
    assert twice.percent_above(Figures(100, 4, 4, 3, 4, 5, 2)) == Figures(
        100, -50, 0, 100, 100, 100, 50
    )
