"""The benchmark of the integration patterns, compared with FastStream and with code on aio-pika, on the same broker.

    handle     publish a typed JSON message, confirmed, and handle it: messages per second of processor time
    request    a request and its reply

A sample is a separate process (`program.py`) that publishes and handles. Its figure is the number of messages
per second of its own processor time, so neither the broker nor another program on the machine changes it much;
the rate is reported as a detail. A hundred publishers wait for their confirms at the same time. All programs use
the same queue, which is durable, and confirms. FastStream is used as its documentation suggests, with pydantic
models; the code on aio-pika decodes with msgspec, the fastest that an author could choose.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE

from bench.book import Book
from bench.generator import Figures
from bench.patterns.program import COUNTS
from bench.peer_environment import python_of_peers
from bench.plan import Plan
from bench.program import ROOT, Program
from bench.scenario import Comparison, Sample, Scenario, Side, limit
from workshop import peers

PINS = Path(__file__).with_name("peers.txt")
PROGRAM = Path(__file__).with_name(
    "program.py"
)  # a file: its package needs more than FastStream has
PEERS = ("faststream", "aio-pika")
TITLES = {
    "handle": "publish and handle a typed message",
    "request": "request and reply",
}
QUICK_SHARE = 4

COMPARISONS = tuple(
    Scenario(
        f"{task}-{peer}",
        f"{title}, vs {peer}",
        "messages/CPU s",
        Comparison.TIMES_MORE,
        peer=peer,
    )
    for task, title in TITLES.items()
    for peer in PEERS
)
FEATURES = {
    "message": "the whole message instead of its body",
    "retry": "retries are configured, prefetch as without",
    "timeout": "a limit of time",
    "selector": "a selector, on a private subscription",
    "intercepted": "an interceptor",
}
COSTS = tuple(
    Scenario(f"cost-{name}", f"handle with {title}", "µs more", Comparison.AT_MOST)
    for name, title in FEATURES.items()
)
MEMORY = Scenario(
    "memory",
    "growth of memory from 100,000 to 1,000,000 messages",
    "MiB",
    Comparison.AT_MOST,
    full_only=True,
)
MEMORY_COUNT = 1_000_000
HARNESS = limit("harness", "failed runs of the tests of the harness, all processors busy", "runs")
HARNESS_RUNS_COUNT, HARNESS_QUICK_RUNS_COUNT = 1_000, 10
SCENARIOS = (*COMPARISONS, *COSTS, MEMORY, HARNESS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    book.peer = "peers"  # each scenario names its own
    with peers.recado() as server:
        for scenario in COMPARISONS:
            if plan.includes(scenario):
                with book.measuring(scenario.name):
                    compare(scenario, server.url, plan, book)
                yield scenario.name
        chosen = [scenario for scenario in COSTS if plan.includes(scenario)]
        with book.measuring(*(scenario.name for scenario in chosen)):
            measure_costs(chosen, server.url, plan, book)
        yield from (scenario.name for scenario in chosen)
        if plan.includes(MEMORY):
            with book.measuring(MEMORY.name):
                for _ in range(plan.rounds):
                    grown = run_program("recado", "handle", server.url, MEMORY_COUNT)["grown_bytes"]
                    book.enter(MEMORY.name, Side.RECADO, Sample(grown / (1 << 20)))
            yield MEMORY.name
    if plan.includes(HARNESS):
        with book.measuring(HARNESS.name):
            found = run_harness(plan)
            for _ in range(plan.rounds):  # a median would forgive a failed run
                book.enter(HARNESS.name, Side.RECADO, found)
        yield HARNESS.name


def run_harness(plan: Plan) -> Sample:
    """Repeat the tests of the harness on a busy machine; return how many runs failed."""
    count = HARNESS_QUICK_RUNS_COUNT if plan.quick else HARNESS_RUNS_COUNT
    command = [sys.executable, "-m", "bench.patterns.harness_runs", str(count)]
    found = run_with_progress("the tests of the harness", command)
    return Sample(found["failed"], {"runs": found["runs"], "tests": found["tests"]})


def compare(scenario: Scenario, url: str, plan: Plan, book: Book) -> None:
    task = scenario.name.removesuffix(f"-{scenario.peer}")
    for _ in range(plan.rounds):
        book.enter(scenario.name, Side.RECADO, sample("recado", task, url, plan))
        if plan.with_peer:
            book.enter(scenario.name, Side.PEER, sample(scenario.peer, task, url, plan))


def measure_costs(chosen: Sequence[Scenario], url: str, plan: Plan, book: Book) -> None:
    """Measure what each feature adds to the processor time of a message, beside a run without it."""
    for _ in range(plan.rounds if chosen else 0):
        plain = sample("recado", "handle", url, plan).details["cpu_us"]
        for scenario in chosen:
            feature = scenario.name.removeprefix("cost-")
            found = sample("recado", feature, url, plan).details["cpu_us"]
            book.enter(scenario.name, Side.RECADO, Sample(found - plain, {"cpu_us": found}))


def sample(library: str, task: str, url: str, plan: Plan) -> Sample:
    """Run one program; return its messages per second of processor time."""
    count = COUNTS[library] // (QUICK_SHARE if plan.quick else 1)
    found = run_program(library, task, url, count)
    return Sample(
        count / found["cpu"],
        {"rate": count / found["seconds"], "cpu_us": found["cpu"] / count * 1e6},
    )


def run_program(library: str, task: str, url: str, count: int) -> Figures:
    """Run one program; return what it prints."""
    python = python_of_peers(PINS) if library == "faststream" else Path(sys.executable)
    command = [str(python), str(PROGRAM), library, task, url, str(count)]
    return run_with_progress(library, command)


def run_with_progress(name: str, command: Sequence[str]) -> Figures:
    """Run a program that prints lines of progress, and then its figures; it is killed if no line comes in time.

    Only its progress has a deadline: how long it takes depends on what else the machine does.
    """
    process = subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, cwd=ROOT)
    with process:
        program = Program(name, process)
        try:
            while "progress" in (figures := program.figures()):
                if errors := figures.get("errors"):
                    print(errors, file=sys.stderr, flush=True)
        finally:
            process.kill()  # it has ended, unless there is an error
    return figures
