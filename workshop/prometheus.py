"""Start Debian's Prometheus, which scrapes the metrics of a node, and query it.

with prometheus({"recado": f"127.0.0.1:{port}"}) as server:
    server.await_samples("rabbitmq_queues", count=2)
    server.query("sum(rabbitmq_queues)")
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from workshop import system
from workshop.peers import HOST, free_ports, process, temporary_folder, until_ready
from workshop.time_limit import scale

REQUEST_TIMEOUT_S = 30.0
SCRAPE_PATIENCE_S = 20.0


class Series(NamedTuple):
    """One time series of the result of a query, at its last point."""

    labels: dict[str, str]
    value: float


class QueryRefusedError(ValueError):
    """Prometheus refused an expression; the message has the reason."""


class Prometheus(NamedTuple):
    """A running Prometheus."""

    url: str
    pid: int
    log: Path

    def query(self, expression: str) -> list[Series]:
        """Return the current value of an expression. Raises `QueryRefusedError` if it is not valid."""
        address = f"{self.url}/api/v1/query?{urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(address, timeout=REQUEST_TIMEOUT_S) as response:
                result: dict[str, Any] = json.load(response)["data"]
        except urllib.error.HTTPError as refused:
            with refused:
                raise QueryRefusedError(f"{expression}: {refused.read().decode()}") from refused
        if result["resultType"] == "scalar":
            return [Series({}, float(result["result"][1]))]
        return [Series(each["metric"], float(each["value"][1])) for each in result["result"]]

    def read_types(self) -> dict[str, str]:
        """Return the type of each metric that was scraped."""
        with urllib.request.urlopen(
            f"{self.url}/api/v1/metadata", timeout=REQUEST_TIMEOUT_S
        ) as response:
            metadata: dict[str, list[dict[str, str]]] = json.load(response)["data"]
        return {name: entries[0]["type"] for name, entries in metadata.items()}

    def count_samples(self, metric: str) -> int:
        """Return how often a metric was scraped; of several series, the one that was scraped most often."""
        found = self.query(f"max(count_over_time({metric}[10m]))")
        return round(found[0].value) if found else 0

    def await_samples(self, metric: str, count: int) -> None:
        """Wait until each series of a metric was scraped `count` times, so that its rate can be computed."""
        deadline = time.monotonic() + scale(SCRAPE_PATIENCE_S)
        while True:
            found = self.query(f"min(count_over_time({metric}[10m]))")
            if found and found[0].value >= count:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{metric} was not scraped {count} times: {found}")
            time.sleep(0.1)


@contextmanager
def prometheus(targets: Mapping[str, str], *, interval_s: int = 1) -> Iterator[Prometheus]:
    """Start Prometheus in a temporary folder; `targets` are addresses, with the path, by the name of the job."""
    (program,) = system.need(system.PROMETHEUS)
    (port,) = free_ports(1)
    with temporary_folder("prometheus") as folder:
        jobs = []
        for name, target in targets.items():
            address, _, path = target.partition("/")
            jobs.append(
                {
                    "job_name": name,
                    "metrics_path": f"/{path or 'metrics'}",
                    "static_configs": [{"targets": [address]}],
                }
            )
        config = {"global": {"scrape_interval": f"{interval_s}s"}, "scrape_configs": jobs}
        (folder / "prometheus.json").write_text(json.dumps(config))  # JSON is YAML
        log = folder / "prometheus.log"
        command = [
            program,
            f"--config.file={folder / 'prometheus.json'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={HOST}:{port}",
            "--log.level=warn",
        ]
        # Stopped by SIGKILL: its data is temporary, and a graceful stop writes it once more.
        with process(command, log, os.environ, signal.SIGKILL) as started:
            until_ready("Prometheus", started, log, lambda: port, is_serving)
            yield Prometheus(f"http://{HOST}:{port}", started.pid, log)


def is_serving(port: int) -> bool:
    """Whether Prometheus answers queries."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/-/ready", timeout=5) as response:
            return bool(response.status == http.HTTPStatus.OK)
    except OSError:
        return False
