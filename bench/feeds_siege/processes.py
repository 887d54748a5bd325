"""The processes of a siege: programs and the broker, started, killed, stopped and continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from random import Random
from typing import Final, Protocol

from workshop import peers
from workshop.peers import Server

ROOT: Final = Path(__file__).resolve().parents[2]


class Target(Protocol):
    """Something that faults happen to."""

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def signal(self, number: signal.Signals) -> None: ...


class Program:
    """A publisher, subscriber or archive, in a process of its own."""

    def __init__(self, name: str, role: str, url: str, folder: Path, rng: Random) -> None:
        self.name = name
        self.role = role
        self.faults: list[str] = []
        self._url = url
        self._folder = folder
        self._rng = rng
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        command = [sys.executable, "-m", "bench.feeds_siege.programs", self.role, self.name]
        command += [self._url, str(self._folder), str(self._rng.randrange(2**32))]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """A child that was not waited for: its process id is still its own."""
        if self._process is None:
            return
        ended = self._process.poll()
        if ended is not None:
            self.faults.append(f"{self.name} ended by itself ({ended}):\n{peers.tail(self.log)}")
        else:
            self._process.kill()
            self._process.wait()
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


class Broker:
    """Uses one data folder and one port in all its incarnations. It starts in the background."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        (self.port,) = peers.free_ports(1)
        self._incarnation = ExitStack()
        self._thread = ThreadPoolExecutor(1)
        self._starting: Future[Server] | None = None
        folder.mkdir()

    @property
    def is_running(self) -> bool:
        return self._starting is not None and self._starting.done()

    def start(self) -> None:
        if self._starting is None:
            self._starting = self._thread.submit(self._incarnation.enter_context, self._started())

    def until_started(self) -> None:
        assert self._starting is not None
        self._starting.result()

    def _started(self) -> AbstractContextManager[Server]:
        if self._kind == "recado":
            return peers.recado(port=self.port, data=self._folder, stop=signal.SIGKILL)
        return peers.rabbitmq(port=self.port, data=self._folder)

    def kill(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            os.kill(starting.result().pid, signal.SIGKILL)
            self._incarnation.close()

    def signal(self, number: signal.Signals) -> None:
        if self._starting is not None:
            os.kill(self._starting.result().pid, number)

    def close(self) -> None:
        self.kill()
        self._thread.shutdown()
