"""The chat benchmark: a room in which everyone writes and reads.

    users.py    simulated users: raw WebSockets of one process

Users sign in, join one room, and write in turn. The latency is that of every receipt by every user, from writing on one
socket to reading on another. The chat runs with its own broker in one process; its processor time contains the broker,
the archive of the history and the read model.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench import processes
from bench.book import Book, NotMeasuredError
from bench.plan import Plan
from bench.processes import processor_seconds, resident_megabytes
from bench.program import LONGEST_S, ROOT, Program
from bench.quiet import settle
from bench.scenario import Comparison, Sample, Scenario, Side, limit

ROOM = "benchmark"
STOP_TIMEOUT_S = 20
PAUSE_S = 1.0


class Size(NamedTuple):
    """How many users, how many messages per second they write together, and for how long."""

    name: str
    users_count: int
    rate: float
    seconds: float
    full_only: bool


SIZES = (
    Size("room-100", 100, 20.0, 5.0, full_only=False),
    Size("room-500", 500, 20.0, 10.0, full_only=True),
    Size("room-500-fast", 500, 200.0, 5.0, full_only=True),
)


def scenarios_of(size: Size) -> tuple[Scenario, ...]:
    about = f"{size.users_count} users, {size.rate:g} messages/s"
    kinds = (
        limit(f"{size.name}-p95", f"{about}: send to receipt, p95", "ms"),
        limit(f"{size.name}-cpu", f"{about}: processor time of the chat", "% of a core"),
        limit(f"{size.name}-memory", f"{about}: memory of the chat", "MB"),
    )
    if not size.full_only:
        return kinds
    return tuple(
        Scenario(each.name, each.title, each.unit, Comparison.AT_MOST, full_only=True)
        for each in kinds
    )


SCENARIOS = tuple(scenario for size in SIZES for scenario in scenarios_of(size))


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    processes.allow_many_open_files()
    for size in SIZES:
        names = [each.name for each in scenarios_of(size) if plan.includes(each)]
        if not names:
            continue
        with book.measuring(*names):
            for _ in range(plan.rounds):
                settle(PAUSE_S)
                sample = take(size)
                for name in names:
                    book.enter(name, Side.RECADO, Sample(sample[name], sample))
        yield from names


def take(size: Size) -> dict[str, float]:
    """Return one figure for each scenario, by its name, and the other percentiles."""
    with started_chat() as (pid, url), started_users(url, size) as (program, process):
        program.until_ready()
        before = processor_seconds(pid)
        _continue(process)
        figures = program.figures()
        used_s = processor_seconds(pid) - before
        memory = resident_megabytes(pid)
        _continue(process)
    expected = figures["written"] * size.users_count
    if figures["received"] != expected:
        raise NotMeasuredError(f"{figures['received']:,.0f} of {expected:,.0f} receipts arrived")
    return {
        f"{size.name}-p95": figures["p95_ms"],
        f"{size.name}-cpu": 100 * used_s / size.seconds,
        f"{size.name}-memory": memory,
        **figures,
    }


@contextmanager
def started_chat() -> Iterator[tuple[int, str]]:
    """Run a chat in a process of its own; return its process id and its address."""
    command = [sys.executable, "-m", "recado", "chat", "--port", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None:
                raise NotMeasuredError("the chat did not start")
            yield process.pid, found.group()
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def started_users(url: str, size: Size) -> Iterator[tuple[Program, subprocess.Popen[str]]]:
    """Run simulated users in a process of their own."""
    arguments = (url, ROOM, size.users_count, size.rate, size.seconds)
    with subprocess.Popen(
        [sys.executable, "-m", "bench.chat.users", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Program("users", process), process
        finally:
            process.terminate()
            try:
                process.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _continue(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
