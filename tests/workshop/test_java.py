"""Which Java is taken: that of JAVA_HOME if it will do, else the system's, else one that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from workshop import java, system


def fake(folder: Path, banner: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return fake(tmp_path / "old", 'java version "1.8.0_401"')


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return fake(tmp_path / "new", 'openjdk version "21.0.2" 2024-01-16')


def system_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = system.Program("java", system.JAVA.package, (str(folder / "bin"),))
    monkeypatch.setattr(system, "JAVA", program)


def test_java_home_comes_first(old: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system_has(old, monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java.java_home() == new


def test_one_that_is_too_old_is_passed_over(
    old: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_has(new, monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java.java_home() == new


def test_a_newer_one_is_installed(old: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system_has(old, monkeypatch)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(system, "install", lambda packages: system_has(new, monkeypatch))
    assert java.java_home() == new


def test_who_may_not_install_is_told(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system_has(old, monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(old / "nowhere"))
    monkeypatch.setattr(system, "install", lambda packages: None)
    with pytest.raises(system.MissingPrograms, match="set JAVA_HOME"):
        java.java_home()


def test_what_does_not_tell_its_version_will_not_do(tmp_path: Path) -> None:
    assert java.version(fake(tmp_path, "I am no java") / "bin" / "java") == 0
