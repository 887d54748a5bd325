"""The programs and the broker of a siege as processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from workshop import peers
from workshop.peers import HOST, Server

from .attempts import BROKER, Kill
from .roles import TRAPS_FOLDER, Point

ROOT: Final = Path(__file__).resolve().parents[2]


class Worker:
    """A program in a process of its own, started again whenever it was killed."""

    def __init__(self, role: str, command: list[str], log: Path, folder: Path) -> None:
        self.role = role
        self.faults: list[str] = []
        self.ended: list[tuple[int, float]] = []  # pids that have killed themselves, and until when
        self._command = command
        self._log = log
        self._traps = folder / TRAPS_FOLDER
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def tend(self) -> bool:
        """Start the program again if it has killed itself; whether it had. Any other end is a fault."""
        status = self.process.poll()
        if status is None:
            return False
        if status == -signal.SIGKILL:
            self.ended.append((self.process.pid, time.time()))
        else:
            self.faults.append(f"{self.role} ended ({status}):\n{peers.tail(self._log)}")
        self.disarm()
        self.process = self._start()
        return True

    def kill(self) -> Kill:
        """Kill the program and start it again, without a moment in which `tend` would start another one."""
        began, pid = time.time(), self.process.pid
        self.end()
        kill = Kill(self.role, pid, began, time.time())
        self.disarm()
        self.process = self._start()
        return kill

    def arm(self, point: Point, passages: int, what: str) -> None:
        """Arm the trap of the program, unless it is."""
        file = self._traps / str(self.process.pid)
        if not file.exists():
            draft = file.with_suffix(".draft")
            draft.write_text(f"{point.value} {passages} {what}")
            draft.rename(file)

    def disarm(self) -> None:
        """Let a program that is held go on."""
        file = self._traps / str(self.process.pid)
        file.unlink(missing_ok=True)
        file.with_suffix(".held").unlink(missing_ok=True)

    @property
    def is_held(self) -> bool:
        return (self._traps / f"{self.process.pid}.held").exists()

    def send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self) -> None:
        """A child that was not waited for: its process id is still its own."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def internal_errors(self) -> list[str]:
        """Return the lines of its log that name a fault of the program itself."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [f"{self.role}: {line}" for line in lines if any(each in line for each in INTERNAL)]


INTERNAL: Final = (
    "internal error",
    "was never retrieved",
    "was never awaited",
    "Fatal Python error",
    "Exception in callback",
)


class Broker:
    """Uses one data folder and one port in all its incarnations."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        (self.port,) = peers.free_ports(1)
        self._incarnation = ExitStack()
        folder.mkdir()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"

    def start(self) -> None:
        self._incarnation.enter_context(self._started())

    def _started(self) -> AbstractContextManager[Server]:
        if self._kind == "recado":
            return peers.recado(port=self.port, data=self._folder, stop=signal.SIGKILL)
        # Quorum queues of 3.10 that are not empty find no leader after a kill.
        return peers.rabbitmq(port=self.port, data=self._folder, stop=signal.SIGTERM)

    async def restart(self) -> Kill:
        began = time.time()
        await asyncio.to_thread(self.close)
        await asyncio.to_thread(self.start)
        return Kill(BROKER, 0, began, time.time())

    def close(self) -> None:
        self._incarnation.close()
