"""The processes of a run, and their output: one line of JSON on standard output for each event."""

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

STOP_TIMEOUT_S: Final = 10.0


class ProcessFailedError(RuntimeError):
    """A process ended too early, or wrote unexpected output. If it ended, the message has the last line of its
    standard error."""


class RecadoProcess:
    """A `recado …` process. Created by `run_process`."""

    def __init__(self, name: str, process: Process, stderr: IO[bytes]) -> None:
        self.name = name
        self._process = process
        self._stderr = stderr

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read_line(self) -> str:
        """Return the next line of its standard output. Raises ProcessFailedError if the process has ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise ProcessFailedError(
                f"the {self.name} ended with status {status}: {self._last_error_line()}"
            )
        return line.decode().rstrip()

    def _last_error_line(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").splitlines()
        return lines[-1].removeprefix("recado: ") if lines else "no error output"

    async def read_json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(await self.read_line())
        return found

    async def stop(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        # Read to the end, which closes the pipe.
        await self._process.communicate()

    def cpu_seconds(self) -> float:
        """Return the CPU time that it has used so far, user and system.

        /proc/<pid>/stat is `pid (name) state …`, with utime and stime as the fields 14 and 15. The name may
        contain spaces, so fields are counted from the last parenthesis on.
        """
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def run_process(name: str, *arguments: str) -> AsyncIterator[RecadoProcess]:
    """Run `recado` with these arguments during the block; then terminate it and wait for its end."""
    with TemporaryFile() as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "recado", *arguments),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=stderr,
        )
        running = RecadoProcess(name, process, stderr)
        try:
            yield running
        finally:
            await running.stop()
