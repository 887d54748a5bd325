"""One sample: a probe and an attacker on one broker, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.fairness.attacks import BY_NAME
from bench.generator import Figures, command
from bench.program import ROOT, Program, stream
from bench.scenario import Sample
from workshop.peers import Server

PROBE_PAUSE_US = 1000
PROBE_S = 600

# The figures of the probe that are reported: for replies and confirms.
FIGURES = ("p50", "p99", "max", "cpu_max")


@contextmanager
def running(name: str, arguments: list[str]) -> Iterator[tuple[Program, subprocess.Popen[str]]]:
    """Run a program during the block, and close its input at the end."""
    with subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield Program(name, process), process
        except BaseException:
            process.kill()
            raise


def waits_during(server: Server, work: Callable[[], object]) -> Sample:
    """Measure the waits of an idle client while some work is done."""
    arguments = ["--pause", str(PROBE_PAUSE_US), "--prefix", "fairness.probe", "--stall", "120"]
    probe = command(server, "probe", arguments, PROBE_S)
    with running("probe", probe) as (program, process):
        program.until_ready()
        work()
        stream(process.stdin).close()
        return sample_of(program.figures())


def sample_of(figures: Figures) -> Sample:
    """The worse of both kinds of wait, in milliseconds."""
    details = {"probes": figures["messages"], "seconds": figures["seconds"]}
    for figure in FIGURES:
        kinds = {kind: figures[f"{kind}_{figure}_us"] / 1e3 for kind in ("answer", "confirm")}
        details |= {f"{kind}_{figure}_ms": value for kind, value in kinds.items()}
        details[f"{figure}_ms"] = max(kinds.values())
    return Sample(details["max_ms"], details)


def attack(
    server: Server, name: str, seed: int, *, quick: bool, patience: float | None = None
) -> Sample:
    """The waits during an attack, without its preparation and its removal.

    After `patience` seconds the attack is left alone, and so must be the broker.
    """
    arguments = [sys.executable, "-m", "bench.fairness.attacker", name]
    arguments += [server.host, str(server.port), "--seed", str(seed)]
    arguments += ["--quick"] if quick else []
    arguments += [] if patience is None else ["--patience", str(patience)]
    with running(f"attacker ({name})", arguments) as (program, process):
        program.until_ready()
        go = stream(process.stdin)

        def work() -> None:
            go.write("go\n")
            go.flush()
            took.update(program.figures())

        took: Figures = {}
        sample = waits_during(server, work)
        go.close()
        process.wait()
    details = {**sample.details, "attack_seconds": took["seconds"], "finished": took["finished"]}
    sizes = BY_NAME[name].sizes
    if quick and sizes is not None:
        details["taken_at"] = sizes[0]
    return Sample(sample.value, details)
