"""The journal: intact, damaged, too large for a quick check."""

from __future__ import annotations

from pathlib import Path

import pytest

from recado.cli.doctor.diagnosis import Severity
from recado.cli.doctor.journal import check_reports, verify
from recado.journal.disk import FolderDisk
from recado.journal.journal import Journal
from recado.journal.record import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, encode_file_header

from .conftest import Diagnose

RECORDS = [b"one", b"two", b"three"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with the journal of the queues and of a stream."""
    for folder in ("journal", "streams/1"):
        journal = Journal(FolderDisk(tmp_path / "data" / folder))
        assert list(journal.recover()) == []
        for record in RECORDS:
            journal.append(record)
        journal.close()
    return tmp_path / "data"


def file_of(data: Path) -> Path:
    (path,) = (data / "journal").glob("*.journal")
    return path


def test_an_intact_journal(data: Path, diagnose: Diagnose) -> None:
    found = diagnose("journal", "--data", str(data))
    assert found.severities == ["ok"]
    assert found.only["found"].startswith("6 records in ")


def test_a_flipped_byte(data: Path, diagnose: Diagnose) -> None:
    content = bytearray(file_of(data).read_bytes())
    content[FILE_HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1
    file_of(data).write_bytes(content)
    found = diagnose("journal", "--data", str(data))
    assert (found.status, found.severities) == (1, ["error"])
    assert found.only["found"].startswith(f"1 damaged file; the first is {file_of(data)}, at byte ")
    repair = f"recado journal check --data {data} --repair"
    assert found.only["fixes"][0].startswith(repair)


def test_a_format_of_the_future(data: Path, diagnose: Diagnose) -> None:
    content = bytearray(file_of(data).read_bytes())
    content[4] += 1
    header = bytes(content[:FILE_HEADER_BYTES])
    assert header != encode_file_header(0, 0)
    file_of(data).write_bytes(content)
    found = diagnose("journal", "--data", str(data))
    assert (found.status, found.severities) == (1, ["error"])


def test_a_journal_that_takes_too_long(data: Path) -> None:
    folders = [data / "journal", data / "streams" / "1"]
    verified = verify(folders, time_max_s=0)
    assert len(verified.reports) == 1
    finding = check_reports(data, verified)
    assert finding.severity is Severity.WARNING
    assert "were not verified" in finding.found
    assert finding.fixes == (f"recado journal check --data {data}",)


def test_no_journal_yet(tmp_path: Path, diagnose: Diagnose) -> None:
    found = diagnose("journal", "--data", str(tmp_path / "new"))
    assert found.severities == ["ok"]
    assert diagnose("journal").findings == []
