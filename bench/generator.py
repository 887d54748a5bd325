"""Compiles and runs the load generator, loadgen/*.c.

It is compiled when first needed, into a folder that git ignores. The file name contains a digest of the
sources, so that a change is compiled and an unchanged program is reused.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bench.book import NotMeasuredError
from bench.processes import family
from workshop import system
from workshop.peers import Server

SOURCES = Path(__file__).with_name("loadgen")
BUILD = Path(__file__).with_name("build")
FLAGS = ("-std=gnu11", "-O2", "-flto=auto", "-Wall", "-Wextra")

# The generator has its own watchdog; this is for the case that it fails.
GRACE_S = 10.0

Figures = dict[str, float]


@cache
def build() -> Path:
    """Compile the load generator unless that was done before; return its path."""
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sources:
        digest.update(source.read_bytes())
    program = BUILD / f"loadgen-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    BUILD.mkdir(exist_ok=True)
    (gcc,) = system.need(system.GCC)
    unfinished = program.with_suffix(f".{os.getpid()}")
    files = [str(source) for source in sources if source.suffix == ".c"]
    subprocess.run([gcc, *FLAGS, "-o", str(unfinished), *files], check=True)
    # Atomic, in case another process compiles it at the same time.
    unfinished.rename(program)
    return program


def command(server: Server, mode: str, arguments: Sequence[str], seconds: int) -> list[str]:
    watched = [word for pid in family(server.pid) for word in ("--watch", str(pid))]
    where = ["--host", server.host, "--port", str(server.port), "--seconds", str(seconds)]
    return [str(build()), mode, *where, *watched, *arguments]


def generate(server: Server, mode: str, *arguments: str, seconds: int = 100) -> Figures:
    """Run the load generator once, and return its figures. Raises NotMeasuredError."""
    try:
        done = subprocess.run(
            command(server, mode, arguments, seconds),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + GRACE_S,
        )
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(
            f"{server.name}: the load generator did not end within {seconds + GRACE_S:g} s"
        ) from None
    if done.returncode:
        raise NotMeasuredError(f"{server.name}: {last_line(done.stderr)}")
    return figures_of(done.stdout)


@contextmanager
def idle_connections(server: Server, count: int, seconds: int = 100) -> Iterator[Figures]:
    """Hold `count` connections, each with a channel, while the block runs."""
    arguments = ("--connections", str(count))
    with subprocess.Popen(
        command(server, "idle", arguments, seconds),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout
        assert started.stderr
        line = started.stdout.readline()
        if not line:
            raise NotMeasuredError(f"{server.name}: {last_line(started.stderr.read())}")
        try:
            yield figures_of(line)
        finally:
            # Do not let it close its connections in order: that would take many seconds for thousands of them,
            # and the broker is stopped next.
            started.kill()


def figures_of(line: str) -> Figures:
    figures: Figures = {k: v for k, v in json.loads(line).items() if not isinstance(v, str)}
    return figures


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "the program failed without an error message"
