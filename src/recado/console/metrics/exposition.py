"""The two text formats that Prometheus reads: its own, version 0.0.4, and OpenMetrics.

The Prometheus client library is not used, because it builds all samples as objects in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from recado.broker.histogram import Histogram

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_FORMAT: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Writer:
    """Writes samples in one of the formats."""

    def __init__(self, *, openmetrics: bool) -> None:
        self._openmetrics = openmetrics

    def head(self, name: str, kind: str, text: str) -> bytes:
        if self._openmetrics:
            name = name.removesuffix("_total") if kind == "counter" else name
            kind = "unknown" if kind == "untyped" else kind
        return f"# TYPE {name} {kind}\n# HELP {name} {text}\n".encode()

    def sample(self, name: str, labels: Labels, value: float) -> bytes:
        return self.samples(name, [(format_labels(labels), value)])

    def samples(self, name: str, values: Iterable[tuple[str, float]]) -> bytes:
        """Return samples of one metric, each with its formatted labels."""
        # All digits: Prometheus computes rates from differences of large counters.
        return "".join(
            f"{name}{labels} {int(value) if value == int(value) else value}\n"
            for labels, value in values
        ).encode()

    def single(self, name: str, kind: str, text: str, value: float, labels: Labels = ()) -> bytes:
        return self.head(name, kind, text) + self.sample(name, labels, value)

    def histogram(
        self, name: str, text: str, histogram: Histogram, labels: Labels = ()
    ) -> Iterator[bytes]:
        yield self.head(name, "histogram", text)
        count = 0
        # A copy, because a thread may observe meanwhile: the count is that of the last bucket.
        for limit, observed in zip((*histogram.limits, None), histogram.counts.copy(), strict=True):
            count += observed
            bound = "+Inf" if limit is None else _format_limit(limit)
            yield self.sample(f"{name}_bucket", (*labels, ("le", bound)), count)
        yield self.sample(f"{name}_sum", labels, histogram.total)
        yield self.sample(f"{name}_count", labels, count)

    def end(self) -> bytes:
        return b"# EOF\n" if self._openmetrics else b""


def format_labels(labels: Labels) -> str:
    """Return labels as they follow the name of a metric."""
    inner = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
    return f"{{{inner}}}" if inner else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _format_limit(limit: float) -> str:
    """Return the label of a bucket as OpenMetrics writes it, which Prometheus 3 and dashboards expect."""
    text = f"{limit:g}"
    return text if "." in text or "e" in text else f"{text}.0"
