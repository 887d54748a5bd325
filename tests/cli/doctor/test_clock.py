"""A clock that is not synchronised, and one that is behind the files of the journal."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import recado
from recado.cli.doctor.clock import check_newest_file, check_synchronisation, read_synchronisation
from recado.cli.doctor.diagnosis import Severity

from .conftest import Diagnose


def test_a_clock_that_is_behind(tmp_path: Path, diagnose: Diagnose) -> None:
    with recado.Broker(data=tmp_path / "data"):
        pass
    flags = ("--data", str(tmp_path / "data"))
    assert diagnose("clock", *flags).severities[1:] == ["ok"]
    later = time.time() + 7200
    os.utime(next((tmp_path / "data" / "journal").iterdir()), (later, later))
    found = diagnose("clock", *flags)
    assert (found.status, found.severities[1:]) == (1, ["error"])
    assert "s behind the newest file of the journal" in found.findings[1]["found"]
    assert "timedatectl set-ntp true" in found.findings[1]["fixes"]


def test_a_small_difference_is_tolerated() -> None:
    assert check_newest_file(1_000.0, 950.0).severity is Severity.OK
    assert check_newest_file(1_000.0, 939.0).severity is Severity.ERROR


@pytest.mark.parametrize(
    ("state", "severity"),
    [(True, Severity.OK), (False, Severity.WARNING), (None, Severity.OK)],
)
def test_synchronisation(state: bool | None, severity: Severity) -> None:
    assert check_synchronisation(state).severity is severity


def test_the_kernel_is_asked() -> None:
    assert read_synchronisation() in (True, False)
