"""A new broker: the time until it answers, and its memory when idle.

Each broker that the benchmark starts for any purpose is one sample of both.
"""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.book import Book, NotMeasuredError
from bench.plan import Plan
from bench.processes import resident_megabytes
from bench.quiet import settle
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers
from workshop.peers import Server

START_UP = Scenario("start-up", "start to first byte", "ms", Comparison.AT_MOST)
IDLE_MEMORY = Scenario("idle-memory", "memory when idle", "MB", Comparison.SHARE_OF_PEER)
SCENARIOS = (IDLE_MEMORY, START_UP)

# Knocking each millisecond, on two cores, made the start that it waits for 13 ms longer (158 instead of 145).
PROBE_PAUSE = 0.005
SETTLE_S = 10.0  # RabbitMQ takes seconds to stop, and a start meanwhile took 30 ms longer

STARTS = 21  # of recado, in the full form: one costs a fifth of a second, a median of three wanders by 40 ms


class Probe:
    """Connects to a port until connection.start is received, in a thread concurrent to the one that starts the
    broker.

    The readiness check of the peers polls every ten milliseconds and reads the log, which is too coarse.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._begun = time.monotonic()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._knock, daemon=True)
        self.milliseconds = 0.0
        self.greeting = b""

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._given_up.set()
        self._thread.join()

    def wait(self) -> None:
        self._thread.join()

    def _knock(self) -> None:
        while not self._given_up.is_set():
            try:
                self._greet()
                return
            except OSError:
                time.sleep(PROBE_PAUSE)

    def _greet(self) -> None:
        with socket.create_connection((peers.HOST, self._port), timeout=5) as connection:
            connection.sendall(peers.PROTOCOL_HEADER)
            first = connection.recv(1)
            if not first:
                raise ConnectionResetError("closed before the first byte")
            self.milliseconds = (time.monotonic() - self._begun) * 1e3
            self.greeting = first + connection.recv(4096)


def sides(plan: Plan) -> tuple[Side, ...]:
    return (Side.RECADO, Side.PEER) if plan.with_peer else (Side.RECADO,)


@contextmanager
def fresh(side: Side, book: Book, data: Path | None = None) -> Iterator[Server]:
    """A broker that has just started; its start and its idle memory are entered."""
    (port,) = peers.free_ports(1)
    if (
        data is None
    ):  # with a data folder several brokers may start concurrently, so the time is not measured
        settle(SETTLE_S)
    try:
        with Probe(port) as probe, starting(side, port, data) as server:
            probe.wait()
            book.enter(START_UP.name, side, Sample(probe.milliseconds))
            book.enter(IDLE_MEMORY.name, side, Sample(resident_megabytes(server.pid)))
            if side is Side.PEER:
                book.peer = f"{server.name} {version_in(probe.greeting)}".strip()
            yield server
    except peers.PeerStartError as error:
        # The first line has the event, the last one of the log that follows has its cause.
        lines = str(error).strip().splitlines()
        raise NotMeasuredError(" ".join(dict.fromkeys((lines[0], lines[-1])))) from error


def starting(side: Side, port: int, data: Path | None) -> AbstractContextManager[Server]:
    """With `data` either broker is killed at the end: its guarantees do not depend on an orderly stop."""
    if side is Side.PEER:
        return peers.rabbitmq(port=port, data=data)
    stop = signal.SIGTERM if data is None else signal.SIGKILL
    return peers.recado(port=port, data=data, stop=stop)


def version_in(greeting: bytes) -> str:
    """The server property `version`: | 7 "version" | 'S' | size u32 | text |."""
    found = re.search(rb"\x07versionS\0\0\0(.)", greeting, re.DOTALL)
    if not found:
        return ""
    text = greeting[found.end() : found.end() + found[1][0]]
    return text.decode(errors="replace")


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Starts further brokers until there are samples enough of both."""
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    if not names:
        return
    with book.measuring(*names):
        for side in sides(plan):
            few = plan.quick or side is Side.PEER
            while len(book.samples(START_UP.name, side)) < (plan.rounds if few else STARTS):
                with fresh(side, book):
                    pass
    yield from names
