"""The hostile clients: many concurrent ones, each with one case, and the outcome."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from bench.fuzz.answers import Answers
from bench.fuzz.case import Case, Ending
from workshop.peers import Server

AT_A_TIME: Final = 24
STALL_S: Final = 0.3
# Queues and bindings of thousands of clients are a load, not a leak. Without regular removal the benchmark
# would measure the number of bindings per message.
CASES_PER_TIDYING: Final = 200
PATIENCE_S: Final = 20.0  # before a broker that does not answer counts as hung
DROP_AT_ONCE: Final = struct.pack("ii", 1, 0)


@dataclass
class Outcome:
    """The totals of all cases of a round."""

    frames: int = 0
    connections: int = 0
    slowest: float = 0.0
    """Seconds from a client's last byte to the broker's."""
    slowest_case: str = ""
    faults: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)

    def add(self, case: Case, seconds: float, answers: Answers) -> None:
        self.frames += len(case.frames)
        self.connections += 1
        self.codes.update(answers.codes)
        if answers.fault is not None:
            self.faults.append(f"{case}: {answers.fault}")
        if seconds > self.slowest:
            self.slowest, self.slowest_case = seconds, str(case)


class Hostile(asyncio.Protocol):
    """One connection of a hostile client. It reads and checks all input."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.closed = asyncio.get_running_loop().create_future()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        self.answers.feed(data)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self.closed.set_result(None)

    async def play(self, case: Case) -> float:
        """Send the case and disconnect; return the seconds from the last byte sent to the end."""
        for piece in case.pieces:
            if self.closed.done():
                return 0.0
            self.transport.write(piece)
            await asyncio.wait_for(self._writable.wait(), PATIENCE_S)
            # Yield to the other clients, so that the broker may read in pieces.
            await asyncio.sleep(case.pause)
        if case.ending is Ending.RESET:
            self._reset()
        elif case.ending is Ending.STALL:
            await asyncio.wait([self.closed], timeout=STALL_S)
        begun = time.monotonic()
        if not self.closed.done() and not self.transport.is_closing():
            self.transport.write_eof()
        await asyncio.wait_for(asyncio.shield(self.closed), PATIENCE_S)
        return time.monotonic() - begun

    def _reset(self) -> None:
        if self.transport.is_closing():
            return
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DROP_AT_ONCE)
        self.transport.abort()


async def attack(
    server: Server,
    cases: Iterator[Case],
    frames: int,
    watch: Callable[[Outcome], bool],
    tidy_up: Callable[[], None],
) -> Outcome:
    """Play cases until so many frames are sent.

    `watch` is called with the progress, and may end it. `tidy_up` is called regularly, in a thread, so that no
    client waits for it, which would be measured as a delay of the broker.
    """
    outcome = Outcome()
    going_on = True

    async def client() -> None:
        nonlocal going_on
        while going_on and outcome.frames < frames:
            case = next(cases)
            try:
                await one(server, case, outcome)
            except OSError:
                going_on = False  # the broker has closed its port
            going_on = going_on and watch(outcome)
            if going_on and case.number % CASES_PER_TIDYING == 0:
                await asyncio.to_thread(tidy_up)

    async with asyncio.TaskGroup() as clients:
        for _ in range(AT_A_TIME):
            clients.create_task(client())
    return outcome


async def one(server: Server, case: Case, outcome: Outcome) -> None:
    loop = asyncio.get_running_loop()
    transport, hostile = await loop.create_connection(Hostile, server.host, server.port)
    seconds = PATIENCE_S
    try:
        seconds = await hostile.play(case)
    except TimeoutError:
        hostile.answers.fault = f"no end within {PATIENCE_S:.0f} s of the last byte"
    finally:
        transport.abort()
        outcome.add(case, seconds, hostile.answers)
