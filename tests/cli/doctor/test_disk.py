"""A full disk, a folder that cannot be written, and a slow disk."""

from __future__ import annotations

import errno
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from recado.cli.doctor import disk
from recado.cli.doctor.diagnosis import Severity
from recado.cli.doctor.disk import DiskFacts, WriteTest, check_disk

from ...small_disk import mounted_disk
from .conftest import Diagnose

MIB = 1 << 20


def test_a_full_disk(tmp_path: Path, diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECADO_BROKER_DISK_FREE_MIN_BYTES", str(MIB // 4))
    with mounted_disk(tmp_path / "disk", MIB) as folder:
        assert diagnose("disk", "--data", str(folder / "data")).severities == ["ok", "ok"]
        with suppress(OSError), (folder / "large").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        found = diagnose("disk", "--data", str(folder / "data"))
    assert (found.status, found.severities) == (1, ["error", "error"])
    space, writes = found.findings
    assert f"{folder}: 0 B of 1.0 MiB are free, the minimum is 256.0 KiB" in space["found"]
    assert space["fixes"][0] == f"du -xh {folder} | sort -h | tail"
    assert writes["found"] == f"{folder}: the disk is full"


def test_less_space_than_the_minimum(
    tmp_path: Path, diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECADO_BROKER_DISK_FREE_MIN_BYTES", str(1 << 60))
    found = diagnose("disk", "--data", str(tmp_path))
    assert found.severities == ["error", "ok"]
    assert found.findings[0]["reason"] == "publishers are blocked until more is free"


def test_a_disk_that_is_mounted_read_only(tmp_path: Path, diagnose: Diagnose) -> None:
    with mounted_disk(tmp_path / "disk", 1 << 30) as folder:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        found = diagnose("disk", "--data", str(folder))
    assert found.severities == ["ok", "error"]
    assert "cannot be written: Read-only file system" in found.findings[1]["found"]
    assert "remount,rw" in found.findings[1]["fixes"][0]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path, diagnose: Diagnose) -> None:
    (tmp_path / "file").touch()
    found = diagnose("disk", "--data", str(tmp_path / "file"))
    assert found.severities == ["ok", "error"]


@pytest.mark.parametrize(
    ("free_mib", "severity"), [(9, Severity.ERROR), (19, Severity.WARNING), (20, Severity.OK)]
)
def test_free_space(free_mib: int, severity: Severity) -> None:
    facts = DiskFacts(Path("/data"), free_mib * MIB, 100 * MIB, WriteTest((0.001,)))
    space, _ = check_disk(facts, 10 * MIB)
    assert space.severity is severity


def test_a_slow_disk() -> None:
    facts = DiskFacts(Path("/data"), MIB, MIB, WriteTest((0.04, 0.05, 0.2)))
    _, writes = check_disk(facts, 0)
    assert writes.severity is Severity.WARNING
    assert writes.found == "an fsync takes 50.0 ms (median), 200.0 ms at most"
    assert writes.reason.endswith("sends 20 messages a second")


def test_a_folder_of_another_user() -> None:
    """Root may write everywhere, so the error is made here."""
    denied = OSError(errno.EACCES, "Permission denied")
    facts = DiskFacts(Path("/data"), MIB, MIB, WriteTest((), denied))
    _, writes = check_disk(facts, 0)
    assert writes.found == "/data cannot be written: Permission denied"
    assert writes.fixes[0].startswith("sudo chown ")


def test_a_parent_folder_that_cannot_be_entered(
    diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mkdir -p` cannot help; the folder of the error must become accessible."""

    def refuse(data: Path) -> DiskFacts:
        raise PermissionError(errno.EACCES, "Permission denied", str(data.parent))

    monkeypatch.setattr(disk, "read_disk", refuse)
    found = diagnose("disk", "--data", "/srv/locked/data").only
    assert found["found"] == "/srv/locked: Permission denied"
    assert found["fixes"][1] == "chmod u+rwx /srv/locked"
