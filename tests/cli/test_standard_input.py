"""Lines of standard input as they arrive; a thread that waits for a terminal delays nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from recado.cli.standard_input import read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def test_lines_come_before_the_end(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        reading, writing = pipe
        lines = read_lines(reading, 100)
        os.write(writing, b"one\ntwo\r\nthr")
        assert await anext(lines) == [b"one", b"two"]
        os.write(writing, b"ee\n\nlast")
        assert await anext(lines) == [b"three", b""]
        os.close(writing)
        assert [found async for found in lines] == [[b"last"]]

    asyncio.run(story())


def test_a_line_without_end_is_refused(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        reading, writing = pipe
        os.write(writing, b"x" * 101)
        with pytest.raises(ValueError, match="more than 100 bytes"):
            await anext(read_lines(reading, 100))
        os.close(writing)

    asyncio.run(story())


def test_nobody_waits_for_what_does_not_come(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        task = asyncio.ensure_future(anext(read_lines(pipe[0], 100)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())  # it ends, although the pipe is open
    os.close(pipe[1])


def test_what_cannot_be_read_is_told() -> None:
    async def story() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            await anext(read_lines(1_000_000, 100))

    asyncio.run(story())
