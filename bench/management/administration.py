"""What administrators do: Prometheus reads all series, and lists and exports are requested without a pause."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from threading import Event, Thread

from bench.book import NotMeasuredError
from bench.generator import Figures
from bench.management.scene import REQUEST_TIMEOUT_S, Node, request
from workshop.prometheus import Prometheus, prometheus

SCRAPE_INTERVAL_S = 15
PATHS = {"list": "/api/queues", "export": "/api/definitions"}
SCRAPE_PATH = "metrics/per-object"
JOB = "broker"


class Administration:
    """Two clients that repeat their requests, and Prometheus."""

    def __init__(self, node: Node, server: Prometheus, pause: float) -> None:
        self._node = node
        self._prometheus = server
        self._pause = pause
        self._is_over = Event()
        self._durations: dict[str, list[float]] = defaultdict(list)
        self._failures: list[str] = []
        self._threads = [Thread(target=self._repeat, args=pair) for pair in PATHS.items()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Return when the present requests have been answered. Raises NotMeasuredError."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(REQUEST_TIMEOUT_S)
        if self._failures:
            raise NotMeasuredError(self._failures[0])

    def figures(self) -> Figures:
        """Return the median duration of each kind of request, how many there were, and of scrapes."""
        found: Figures = {}
        for name, durations in self._durations.items():
            found[f"{name}_seconds"] = median(durations)
            found[f"{name}s"] = len(durations)
        for name, expression in (
            ("scrape_seconds", "max_over_time(scrape_duration_seconds[10m])"),
            ("scrapes", "count_over_time(up[10m])"),
            ("failed_scrapes", "count_over_time(up[10m]) - sum_over_time(up[10m])"),
        ):
            for series in self._prometheus.query(expression):
                found[name] = series.value
        return found

    def _repeat(self, name: str, path: str) -> None:
        while not self._is_over.is_set():
            begun = time.monotonic()
            try:
                request(self._node, "GET", path)
            except NotMeasuredError as error:
                self._failures.append(str(error))
                return
            taken = time.monotonic() - begun
            self._durations[name].append(taken)
            self._is_over.wait(max(0.0, self._pause - taken))


@contextmanager
def administered(node: Node, *, interval: float = 0.0) -> Iterator[Administration]:
    """Administer a broker during the block.

    Each request is repeated every `interval` seconds, or as soon as it was answered if that takes longer.
    """
    target = f"{node.server.host}:{node.metrics_port}/{SCRAPE_PATH}"
    with prometheus({JOB: target}, interval_s=SCRAPE_INTERVAL_S) as server:
        work = Administration(node, server, interval)
        work.start()
        try:
            yield work
        finally:
            work.stop()
