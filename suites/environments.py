"""What a suite is run with: a virtual environment or Node modules of its own.

Separate from the project's .venv, since a suite must see the client it tests and its own
requirements, nothing of ours. A stamp makes later runs instant.
"""

from __future__ import annotations

import hashlib
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from suites.places import CONSTRAINTS, NotAvailableError, command, downloads
from workshop import system


def python(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of an environment with these requirements, at the pinned versions."""
    parts = [sys.version, *requirements, *(file.read_text() for file in CONSTRAINTS)]
    with downloads() as cache:
        folder = cache / f"venv-{name}"
        interpreter = folder / "bin" / "python"
        if not stamped(folder, parts):
            venv.create(folder, clear=True, with_pip=True)
            pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install"]
            pins = [word for file in CONSTRAINTS for word in ("-c", str(file))]
            why = f"the requirements of {name} could not be installed"
            command([*pip, *pins, *requirements], why)
            stamp(folder, parts)
        return interpreter


def node(name: str, requirements: Sequence[str]) -> tuple[str, Path]:
    """The path of node, and a folder of modules with these requirements."""
    try:
        program, npm = system.need(system.NODE, system.NPM)
    except system.MissingProgramsError as missing:
        raise NotAvailableError(str(missing)) from missing
    with downloads() as cache:
        folder = cache / f"node-{name}"
        if not stamped(folder, requirements):
            install = [npm, "install", "--prefix", str(folder), "--ignore-scripts"]
            options = ["--no-audit", "--no-fund"]
            why = f"the requirements of {name} could not be installed"
            command([*install, *options, *requirements], why)
            stamp(folder, requirements)
        return program, folder / "node_modules"


def stamped(folder: Path, parts: Sequence[str]) -> bool:
    file = folder / "stamp"
    return file.is_file() and file.read_text() == fingerprint(parts)


def stamp(folder: Path, parts: Sequence[str]) -> None:
    (folder / "stamp").write_text(fingerprint(parts))


def fingerprint(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
