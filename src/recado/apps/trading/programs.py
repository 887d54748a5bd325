"""The processes of a run, and what they say: a line of JSON on standard output for each thing that happened."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import msgspec

STOP_SECONDS: Final = 10.0


class ProgramFailed(RuntimeError):
    """A process of the run ended before it should have; with the last line of what it complained of."""


class Program:
    """`recado …` as a process. Made by `program`."""

    def __init__(self, name: str, process: Process, complaints: IO[bytes]) -> None:
        self.name = name
        self._process = process
        self._complaints = complaints

    @property
    def pid(self) -> int:
        return self._process.pid

    async def line(self) -> str:
        """The next one that it writes."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise ProgramFailed(f"the {self.name} ended with status {status}: {self._complaint()}")
        return line.decode().rstrip()

    def _complaint(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").splitlines()
        return lines[-1].removeprefix("recado: ") if lines else "it did not say why"

    async def told(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(await self.line())
        return found

    async def stop(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        # To the end: the pipe is closed behind the last byte.
        await self._process.communicate()

    def processor_seconds(self) -> float:
        """What it has used so far, of the user's and the system's time.

        | pid | (name) | state | … | utime, the 14th | stime | …: a name may contain spaces.
        """
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def program(name: str, *words: str) -> AsyncIterator[Program]:
    """Runs while the block lasts; then it is asked to end, and waited for."""
    with TemporaryFile() as complaints:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "recado", *words),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=complaints,
        )
        running = Program(name, process, complaints)
        try:
            yield running
        finally:
            await running.stop()
