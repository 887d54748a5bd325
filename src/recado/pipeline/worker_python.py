"""The Python interpreter for Spark's workers: this one, with the installed pyspark.

Spark puts its pyspark.zip first on the path of its workers. The zip has no bytecode, so each worker compiles
pyspark when it starts: 1.5 s of CPU time instead of 0.5. A query has several workers, and Spark gives up on
one that takes longer than ten seconds to start. So a launcher script starts them without the zip.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from .launcher import cache_directory, write_launcher

_LAUNCHER_TEMPLATE = """\
#!/bin/sh
# Written by recado: runs Python with the installed pyspark instead of Spark's zip, which has no bytecode.
PYTHONPATH={path} exec {python} "$@"
"""


def worker_python(
    master: str, environment: Mapping[str, str] = os.environ, folder: Path | None = None
) -> str:
    """Return the program for Spark's workers: a launcher for local workers, else this interpreter."""
    if not master.startswith("local") or "SPARK_HOME" in environment:
        return sys.executable
    path = shlex.quote(environment.get("PYTHONPATH", ""))
    text = _LAUNCHER_TEMPLATE.format(path=path, python=shlex.quote(sys.executable))
    try:
        name = f"python-{crc32(text.encode()):08x}"
        program = write_launcher((folder or cache_directory(environment)) / name, text)
    except (OSError, RuntimeError):  # the home directory is missing or read-only
        return sys.executable
    return str(program) if os.access(program, os.X_OK) else sys.executable
