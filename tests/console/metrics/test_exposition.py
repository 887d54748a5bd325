"""The text formats, read by Prometheus's own parsers."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from recado.broker.histogram import Histogram
from recado.console.metrics.exposition import Writer


@pytest.mark.parametrize("value", [12_345_678_901, 0.1234567890123])
def test_samples_have_all_digits(value: float) -> None:
    line = Writer(openmetrics=False).sample("x_total", (), value)
    assert line == f"x_total {value}\n".encode()


def test_labels_are_escaped() -> None:
    name = 'orders "new"\\x\n'
    text = Writer(openmetrics=False).single("x", "gauge", "Help", 1, (("queue", name),)).decode()
    ((sample,),) = [family.samples for family in parse_text(text)]
    assert sample.labels == {"queue": name}


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_histogram_is_cumulative(*, openmetrics: bool) -> None:
    histogram = Histogram((0.001, 1, 100, 1_000_000))
    for value in (0.0005, 1, 50, 2_000_000):
        histogram.observe(value)
    writer = Writer(openmetrics=openmetrics)
    text = b"".join((*writer.histogram("x", "Help", histogram, (("a", "b"),)), writer.end()))
    parse = parse_openmetrics if openmetrics else parse_text
    (family,) = parse(text.decode())
    assert family.type == "histogram"
    assert {sample.labels.get("le", sample.name): sample.value for sample in family.samples} == {
        "0.001": 1,
        "1.0": 2,
        "100.0": 3,
        "1e+06": 3,
        "+Inf": 4,
        "x_sum": 2_000_051.0005,
        "x_count": 4,
    }
    assert all(sample.labels["a"] == "b" for sample in family.samples)
