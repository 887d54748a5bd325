"""The broker that is killed again and again, and always started on the same folder."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bench.fuzz.target import traces
from workshop import peers
from workshop.peers import Server

Start: TypeAlias = Callable[[], AbstractContextManager[Server]]


class Subject:
    """A broker that can be started; `command` starts it without waiting, for one that is killed before it
    serves."""

    def __init__(self, start: Start, command: list[str] | None = None) -> None:
        self._start = start
        self._command = command
        self.starts: list[float] = []
        """How many seconds each took until it spoke AMQP."""
        self.faults: list[str] = []

    @contextmanager
    def living(self) -> Iterator[Server]:
        """Run the broker during the block, from its first answer to a kill -9 at the latest at the end of the
        block."""
        begun = time.monotonic()
        with self._start() as server:
            self.starts.append(time.monotonic() - begun)
            try:
                yield server
            finally:
                kill(server)
                self.faults += traces(server)

    def die_young(self, seconds: float) -> None:
        """Start the broker and kill it after so many seconds, wherever it is in its recovery."""
        if self._command is None:
            return
        with peers.temporary_folder("recado") as folder:
            log = folder / "recado.log"
            with peers.process(self._command, log, os.environ, stop=signal.SIGKILL):
                time.sleep(seconds)


def kill(server: Server) -> None:
    """The process is our child and was not waited for, so its id cannot be reused, even if it is dead."""
    os.kill(server.pid, signal.SIGKILL)


def durable(folder: Path) -> Subject:
    command = [str(Path(sys.executable).with_name("recado")), "serve", "--port", "0"]
    start = partial(peers.recado, data=folder, stop=signal.SIGKILL)
    return Subject(start, [*command, "--data", str(folder)])


def forgetful() -> Subject:
    """A control without a data folder: its losses must be found, otherwise the benchmark proves nothing."""
    return Subject(partial(peers.recado, stop=signal.SIGKILL))
