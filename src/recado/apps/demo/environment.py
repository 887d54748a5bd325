"""The environment of the demo: the broker with its archives, the market, and the recorder.

The broker is embedded and has a data folder. Its settings are the defaults, except that it has the management API and
a port for Prometheus, publishes its metrics, and archives two feeds: the quotes and the metrics. The recorder is a
process of its own, so that it can be killed.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, Self

import recado

from .market_publisher import FEED, MarketPublisher

METRICS_FEED: Final = "recado.metrics"
DEFAULT_PORTS: Final = {
    "server.port": 5672,
    "management.port": 15672,
    "management.metrics_port": 15692,
}
"""By setting. If one is in use, the demo takes a free port."""
MARKER_FILE: Final = "RECADO-DEMO"
"""A folder with this file was created by the demo, so the demo may delete it."""
STEP_TIMEOUT_S: Final = 300.0  # a step takes about 15 s on an idle machine


class DemoError(Exception):
    """The demo cannot start or continue."""


class DemoEnvironment:
    """Everything the demo starts, in one folder; leaving the block stops it."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        management_port: int | None = None,
        metrics_port: int | None = None,
        seed: int = 1,
    ) -> None:
        """A port that is given must be free; by default, a free one is taken if the usual one is in use."""
        self.folder = folder
        self.archive = folder / "data" / "feeds" / FEED
        self.counters = folder / "data" / "feeds" / "counters"
        self.database = folder / "ticks.db"
        self._seed = seed
        given = (port, management_port, metrics_port)
        self._given_ports = {
            setting: number
            for setting, number in zip(DEFAULT_PORTS, given, strict=True)
            if number is not None
        }
        self._stack = ExitStack()
        self._recorder: subprocess.Popen[str] | None = None
        self.broker: recado.Broker

    def __enter__(self) -> Self:
        prepare_folder(self.folder)
        with ExitStack() as stack:
            self.broker = self._start_broker(stack)
            stack.callback(self.kill_recorder)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_broker(self, stack: ExitStack) -> recado.Broker:
        """Start the broker; each port that is in use, and was not given, is replaced by a free one."""
        ports = DEFAULT_PORTS | self._given_ports
        while True:
            try:
                return stack.enter_context(self._build_broker(ports))
            except OSError as error:
                setting = getattr(error, "key", "")
                is_fixed = setting in self._given_ports or not ports.get(setting)
                if error.errno != errno.EADDRINUSE or is_fixed:
                    raise
                ports[setting] = 0

    def _build_broker(self, ports: dict[str, int]) -> recado.Broker:
        archives = {
            FEED: {"feed": FEED, "seal_interval": 10.0},
            "counters": {"feed": METRICS_FEED},
        }
        config: dict[str, dict[str, object]] = {
            "feeds": {"archives": archives},
            "metrics": {"publish": True},
            "management": {
                "port": ports["management.port"],
                "metrics_port": ports["management.metrics_port"],
                "status": True,  # the console shows the pipeline
            },
        }
        return recado.Broker(port=ports["server.port"], data=self.folder / "data", config=config)

    @property
    def management_url(self) -> str:
        """The URL of the management API, without the login, which is that of guest."""
        return f"http://127.0.0.1:{self.broker.management_port}/api"

    @property
    def console_url(self) -> str:
        """The URL of the web console, where guest may sign in."""
        return f"http://127.0.0.1:{self.broker.management_port}/"

    @property
    def metrics_url(self) -> str:
        """The URL that Prometheus scrapes."""
        return f"http://127.0.0.1:{self.broker.metrics_port}/metrics"

    def start_market(self, *, morning: int, live: int, speed: float) -> MarketPublisher:
        """Start publishing the morning."""
        market = MarketPublisher(
            self.broker.url, seed=self._seed, morning=morning, live=live, speed=speed
        )
        self._stack.callback(market.stop)
        return market

    # -- the recorder ------------------------------------------------------------------------------

    def start_recorder(self, ticks: int | None = None) -> int:
        """Start or restart the recorder, which ends after this number of ticks; return its process id."""
        command = [sys.executable, "-m", "recado", "quotes", "record", str(self.database)]
        command += ["--url", self.broker.url]
        command += [] if ticks is None else ["--messages", str(ticks)]
        self._recorder = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        return self._recorder.pid

    @property
    def recorded_count(self) -> int:
        """The number of ticks in the database."""
        if not self.database.exists():
            return 0
        with closing(sqlite3.connect(self.database, timeout=STEP_TIMEOUT_S)) as database:
            try:
                (count,) = database.execute("SELECT count(*) FROM tick").fetchone()
            except sqlite3.OperationalError:  # the recorder has not created its tables yet
                return 0
        return int(count)

    def has_recorder_finished(self) -> bool:
        """Whether the recorder has ended successfully. Raises DemoError if it failed."""
        self.check_recorder()
        if self._recorder is None:
            return True
        if self._recorder.poll() is None:
            return False
        self.kill_recorder()  # it has ended: this only closes its pipe
        return True

    def check_recorder(self) -> None:
        """Raise DemoError if the recorder has failed."""
        recorder = self._recorder
        if recorder is not None and recorder.poll():
            self._recorder = None
            _, output = recorder.communicate()
            raise DemoError(f"the recorder failed: {output.strip()}")

    def kill_recorder(self) -> None:
        """Kill the recorder with SIGKILL, so that it cannot clean up; do nothing if there is none."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.kill()
            recorder.communicate()


def prepare_folder(folder: Path) -> None:
    """Create the folder, or replace that of an earlier demo. Raises DemoError if it has other files."""
    marker = folder / MARKER_FILE
    if folder.exists() and any(folder.iterdir()):
        if not marker.is_file():
            raise DemoError(
                f"{folder} is not empty and not a folder of an earlier demo; choose another with --folder"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    marker.touch()
