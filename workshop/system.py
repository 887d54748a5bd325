"""Programs of the operating system that tests and benchmarks need, and how Debian installs them.

Each requirement is a program, its Debian package, and folders to search before PATH. Missing programs are
installed if the process is root on a machine with apt-get; otherwise `MissingProgramsError` has the command to
install them. Nothing is skipped silently.

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
    """A program, its Debian package, and folders to search before PATH; a `*` in one stands for any name."""

    name: str
    package: str
    folders: tuple[str, ...] = ()

    def find(self) -> str | None:
        """Return its path; None if it is not installed."""
        found = (
            str(folder)
            for pattern in self.folders
            for folder in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
        )
        search = os.pathsep.join((*found, os.environ.get("PATH", os.defpath)))
        return shutil.which(self.name, path=search)


# The one on PATH is a wrapper that requires the system's folders and user.
RABBITMQ = Program("rabbitmq-server", "rabbitmq-server", ("/usr/lib/rabbitmq/bin",))
RABBITMQADMIN = Program("rabbitmqadmin", "rabbitmq-server")
EPMD = Program("epmd", "rabbitmq-server", ("/usr/lib/erlang/bin",))
AMQP_TOOLS = Program("amqp-publish", "amqp-tools")
REDIS = Program("redis-server", "redis-server")
NODE = Program("node", "nodejs")
NPM = Program("npm", "npm")
GCC = Program("gcc", "build-essential")
# Debian's folder of this release, whichever Java is first on PATH. See `recado.pipeline.java`.
JAVA = Program(
    "java",
    "openjdk-17-jre-headless",
    ("/usr/lib/jvm/java-17-openjdk-amd64/bin", "/usr/lib/jvm/java-17-openjdk-arm64/bin"),
)
NATS = Program("nats-server", "nats-server")
ZSH = Program("zsh", "zsh")
FISH = Program("fish", "fish")
TMUX = Program("tmux", "tmux")
PROMTOOL = Program("promtool", "prometheus")
PROMETHEUS = Program("prometheus", "prometheus")
CHROMIUM = Program("chromium", "chromium")
# Debian's folder has the number of the release.
POSTGRES = Program("postgres", "postgresql", ("/usr/lib/postgresql/*/bin",))
INITDB = Program("initdb", "postgresql", ("/usr/lib/postgresql/*/bin",))
NGINX = Program("nginx", "nginx-light", ("/usr/sbin",))

FOR_BENCH = (RABBITMQ, EPMD, GCC, NATS, PROMETHEUS)
FOR_SUITES = (RABBITMQ, EPMD, REDIS, NODE, NPM)
FOR_TESTS = (
    RABBITMQ,
    RABBITMQADMIN,
    EPMD,
    AMQP_TOOLS,
    REDIS,
    NODE,
    NPM,
    GCC,
    NATS,
    JAVA,
    PROMTOOL,
    PROMETHEUS,
    ZSH,
    FISH,
    TMUX,
    CHROMIUM,
    NGINX,
    POSTGRES,
    INITDB,
)

POLICY = Path("/usr/sbin/policy-rc.d")


class MissingProgramsError(RuntimeError):
    """Programs are missing and cannot be installed; the message has the command to run."""


def need(*programs: Program) -> list[str]:
    """Return the paths of these programs, after installing missing ones. Raises MissingProgramsError."""
    missing = [program for program in programs if program.find() is None]
    if missing:
        install(program.package for program in missing)
    paths = [program.find() for program in programs]
    absent = [program.name for program, path in zip(programs, paths, strict=True) if path is None]
    if absent:
        raise MissingProgramsError(f"still not found after installing: {', '.join(absent)}")
    return [path for path in paths if path is not None]


def install(packages: Iterable[str]) -> None:
    """Install Debian packages as root. Raises MissingProgramsError with the command otherwise."""
    names = sorted(set(packages))
    as_root = os.geteuid() == 0
    apt = shutil.which("apt-get")
    if apt is None or not as_root:
        command = f"apt-get update && apt-get install --yes {' '.join(names)}"
        hint = f"sudo sh -c '{command}'" if not as_root else command
        raise MissingProgramsError(f"missing system packages: {', '.join(names)}\n  {hint}")
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
                raise MissingProgramsError(f"`{failed}` failed:\n{done.stdout[-2000:]}")


@contextmanager
def no_services_started() -> Iterator[None]:
    """Keep Debian packages from starting their services, which use ports that recado may need.

    Debian's `policy-rc.d` prevents that. An existing one is left unchanged.
    """
    is_created = not POLICY.exists()
    if is_created:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if is_created:
            POLICY.unlink(missing_ok=True)
