"""What happens when a program is missing: it is installed by root, and told to everybody else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from workshop import system

NOWHERE = system.Program("recado-no-such-program", "recado-no-such-package")


def test_what_is_there_is_found(tmp_path: Path) -> None:
    program = tmp_path / "recado-program"
    program.touch(0o755)
    assert system.need(system.Program(program.name, "package", (str(tmp_path),))) == [str(program)]


def test_who_is_not_root_is_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(system.MissingProgramsError) as missing:
        system.need(NOWHERE)
    assert str(missing.value).endswith(
        "sudo sh -c 'apt-get update && apt-get install --yes recado-no-such-package'"
    )


def test_root_without_apt_is_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(system.MissingProgramsError, match=r"\n  apt-get update && apt-get install"):
        system.need(NOWHERE)


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Root on a machine whose apt-get only writes down what it is asked for."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program, asked = tmp_path / "apt-get", tmp_path / "asked"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\ntest -x {system.POLICY} || exit 1\nexit $STATUS\n'
    )
    program.chmod(0o755)
    return asked


def test_root_installs_without_starting_services(
    apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS", "0")
    with pytest.raises(system.MissingProgramsError, match="still not found"):
        system.need(NOWHERE)
    update, install = apt.read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("recado-no-such-package")
    assert not system.POLICY.exists()


def test_a_policy_of_the_machine_stays(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "0")
    system.POLICY.write_text("#!/bin/sh\n")
    system.POLICY.chmod(0o755)
    with pytest.raises(system.MissingProgramsError):
        system.need(NOWHERE)
    assert system.POLICY.read_text() == "#!/bin/sh\n"


def test_a_failing_installation_is_told(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "3")
    with pytest.raises(system.MissingProgramsError, match="apt-get update` failed"):
        system.need(NOWHERE)


ROOT = Path(__file__).resolve().parents[2]


def test_dev_tells_its_commands() -> None:
    told = subprocess.run([ROOT / "dev", "--help"], capture_output=True, text=True, check=True)
    for command in ("run", "test", "check", "bench", "suites", "setup"):
        assert f"./dev {command}" in told.stdout
    wrong = subprocess.run([ROOT / "dev", "tset"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "unknown command 'tset'; available are setup, run, test" in wrong.stderr
