"""A Java that Spark can use: version 17 or newer, from JAVA_HOME, from the system, or else from Debian.

As with every other program, what is missing is installed when we are root on a machine with apt-get; otherwise
`MissingPrograms` tells the command.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from workshop import system

OLDEST = 17


def java_home() -> Path:
    """The folder of a Java that will do."""
    named = os.environ.get("JAVA_HOME")
    programs = [Path(named, "bin", "java")] if named else []
    programs += [Path(path) for path in system.need(system.JAVA)]
    for program in programs:
        if version(program) >= OLDEST:
            return program.resolve().parents[1]
    system.install([system.JAVA.package])  # the one that is there is too old
    (path,) = system.need(system.JAVA)
    if version(Path(path)) >= OLDEST:
        return Path(path).resolve().parents[1]
    raise system.MissingPrograms(
        f"{path} is older than Java {OLDEST}: set JAVA_HOME to the folder of a newer one"
    )


def version(program: Path) -> int:
    """The number of its release, 0 if it does not run."""
    try:
        asked = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(found[1]) if found else 0
