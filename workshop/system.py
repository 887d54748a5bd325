"""Programs of the operating system that tests and benchmarks need, and how Debian installs them.

Every need is a program, the Debian package that brings it, and the folders to look in before PATH.
What is missing is installed when we are root on a machine with apt-get; otherwise `MissingPrograms`
tells the exact command. Nothing is ever skipped silently.

Standard library only: `./dev` imports this module before any environment exists.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """A program we start, the Debian package it comes in, and folders to look in before PATH."""

    name: str
    package: str
    folders: tuple[str, ...] = ()

    def find(self) -> str | None:
        """Its path, or None when it is not on this machine."""
        search = os.pathsep.join((*self.folders, os.environ.get("PATH", os.defpath)))
        return shutil.which(self.name, path=search)


# The one on PATH is a wrapper that insists on the system's own folders and user.
RABBITMQ = Program("rabbitmq-server", "rabbitmq-server", ("/usr/lib/rabbitmq/bin",))
EPMD = Program("epmd", "rabbitmq-server", ("/usr/lib/erlang/bin",))
AMQP_TOOLS = Program("amqp-publish", "amqp-tools")
REDIS = Program("redis-server", "redis-server")
NODE = Program("node", "nodejs")
NPM = Program("npm", "npm")
GCC = Program("gcc", "build-essential")
# Where Debian keeps this release, whichever of those installed is first on PATH. See `recado.pipeline.java`.
JAVA = Program(
    "java",
    "openjdk-17-jre-headless",
    ("/usr/lib/jvm/java-17-openjdk-amd64/bin", "/usr/lib/jvm/java-17-openjdk-arm64/bin"),
)
NATS = Program("nats-server", "nats-server")

FOR_BENCH = (RABBITMQ, EPMD, GCC, NATS)
FOR_SUITES = (RABBITMQ, EPMD, REDIS, NODE, NPM)
FOR_TESTS = (RABBITMQ, EPMD, AMQP_TOOLS, REDIS, NODE, NPM, GCC, NATS, JAVA)

POLICY = Path("/usr/sbin/policy-rc.d")


class MissingPrograms(RuntimeError):
    """Programs are missing and we may not install them; the text is what to type."""


def need(*programs: Program) -> list[str]:
    """The paths of these programs, after installing what is missing."""
    missing = [program for program in programs if program.find() is None]
    if missing:
        install(program.package for program in missing)
    paths = [program.find() for program in programs]
    absent = [program.name for program, path in zip(programs, paths, strict=True) if path is None]
    if absent:
        raise MissingPrograms(f"still not found after installing: {', '.join(absent)}")
    return [path for path in paths if path is not None]


def install(packages: Iterable[str]) -> None:
    """Install Debian packages, as root; anyone else is told the command."""
    names = sorted(set(packages))
    as_root = os.geteuid() == 0
    apt = shutil.which("apt-get")
    if apt is None or not as_root:
        command = f"apt-get update && apt-get install --yes {' '.join(names)}"
        hint = f"sudo sh -c '{command}'" if not as_root else command
        raise MissingPrograms(f"missing system packages: {', '.join(names)}\n  {hint}")
    print(f"installing system packages: {', '.join(names)}", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with no_services_started():
        for step in (["update"], ["install", "--yes", "--no-install-recommends", *names]):
            done = subprocess.run(
                [apt, "--quiet", *step],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                failed = f"apt-get {' '.join(step)}"
                raise MissingPrograms(f"`{failed}` failed:\n{done.stdout[-2000:]}")


@contextmanager
def no_services_started() -> Iterator[None]:
    """Debian's packages start their service when installed, on the port a user may want for recado.

    `policy-rc.d` is Debian's own way to say no. One that is there already is left as it is.
    """
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)
