"""Read lines of standard input in an asyncio program.

A thread that waits for a terminal cannot be interrupted. So each read runs in a daemon thread of its own
that reads the file descriptor directly and holds no lock that the interpreter needs at exit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from threading import Thread
from typing import Final

READ_BYTES: Final = 1 << 18


async def read_lines(descriptor: int, line_bytes_max: int) -> AsyncIterator[list[bytes]]:
    """Iterate over lists of lines, without their line ends; the last line needs none.

    Raises `ValueError` if a line is longer than `line_bytes_max`.
    """
    partial: list[bytes] = []  # pieces of an incomplete line
    size = 0
    while data := await read_chunk(descriptor):
        *complete, remainder = data.split(b"\n")
        if complete:
            complete[0] = b"".join([*partial, complete[0]])
            partial, size = [], 0
            yield [line.removesuffix(b"\r") for line in complete]
        partial.append(remainder)
        size += len(remainder)
        if size > line_bytes_max:
            raise ValueError(f"a line of standard input has more than {line_bytes_max:,} bytes")
    if last := b"".join(partial):
        yield [last.removesuffix(b"\r")]


async def read_chunk(descriptor: int) -> bytes:
    """Return available bytes, waiting for at least one; empty at the end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def read_blocking() -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except OSError as error:
            schedule(None, error)
        else:
            schedule(data, None)

    def schedule(data: bytes | None, error: OSError | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(complete_future, data, error)

    def complete_future(data: bytes | None, error: OSError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(data or b"")

    Thread(target=read_blocking, name="recado-stdin", daemon=True).start()
    return await future
