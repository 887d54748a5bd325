"""`recado journal check`: intact, incomplete and damaged files, and repairs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recado.cli import journal as journal_command
from recado.cli import main, progress
from recado.journal.disk import FolderDisk
from recado.journal.journal import Journal
from recado.journal.record import FILE_HEADER_BYTES, RECORD_HEADER_BYTES

PAYLOADS = [b"one", b"two", b"three"]
CHECK = ["journal", "check"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a journal and a stream."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    for folder in ("journal", "streams/1"):
        journal = Journal(FolderDisk(data / folder))
        assert list(journal.recover()) == []
        for payload in PAYLOADS:
            journal.append(payload)
        journal.close()
    return data


def segment(data: Path, folder: str = "journal") -> Path:
    (path,) = (data / folder).glob("*.journal")
    return path


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def contents(folder: Path) -> list[bytes]:
    journal = Journal(FolderDisk(folder))
    found = [payload for _, payload in journal.recover()]
    journal.close()
    return found


def test_a_whole_folder(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHECK, "--data", str(data)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, folder in zip(lines, ("journal", "streams/1"), strict=True):
        assert line.startswith(str(segment(data, folder)))
        assert line.endswith("intact")
        assert " 3 records" in line


def test_the_folder_can_be_named_by_the_environment(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECADO_NODE_DATA", str(data))
    assert main(CHECK) == 0


def test_an_unfinished_write_is_no_damage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with segment(data).open("ab") as file:
        file.write(b"unfinished")
    assert main([*CHECK, "--data", str(data)]) == 0
    assert "then 10 bytes of an incomplete write" in capsys.readouterr().out


def test_damage_is_told_with_a_hint(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(segment(data, "streams/1"), FILE_HEADER_BYTES + RECORD_HEADER_BYTES)
    assert main([*CHECK, "--data", str(data)]) == 1
    told = capsys.readouterr()
    assert f"at byte {FILE_HEADER_BYTES}: the checksum is wrong (12 bytes)" in told.out
    assert "damaged files: 1; " in told.err
    assert "--repair" in told.err


def test_it_has_a_form_for_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(segment(data), FILE_HEADER_BYTES + RECORD_HEADER_BYTES)
    assert main([*CHECK, "--data", str(data), "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert first == {
        "file": str(segment(data)),
        "records": 2,
        "bytes": FILE_HEADER_BYTES + 3 * RECORD_HEADER_BYTES + 11,
        "unfinished": 0,
        "damages": [{"position": FILE_HEADER_BYTES, "bytes": 12, "what": "the checksum is wrong"}],
    }
    assert second["damages"] == []


def test_repair_says_what_it_drops_and_then_drops_it(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(data)
    damage(path, 3)
    damage(path, FILE_HEADER_BYTES + RECORD_HEADER_BYTES)
    before = path.read_bytes()
    assert main([*CHECK, "--data", str(data), "--repair"]) == 1
    told = capsys.readouterr().err
    assert f"{path} at byte 0: the header would be rewritten" in told
    assert f"{path} at byte {FILE_HEADER_BYTES}: 12 bytes would be dropped" in told
    assert "--yes" in told
    assert path.read_bytes() == before
    assert main([*CHECK, "--data", str(data), "--repair", "--yes"]) == 0
    assert contents(data / "journal") == PAYLOADS[1:]
    assert main([*CHECK, "--data", str(data)]) == 0


def test_what_cannot_be_repaired_is_told(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(segment(data), FILE_HEADER_BYTES + RECORD_HEADER_BYTES)
    monkeypatch.setattr(journal_command, "repair_segments", lambda *_: None)
    assert main([*CHECK, "--data", str(data), "--repair", "--yes"]) == 1
    assert "still damaged: 1" in capsys.readouterr().err


def test_a_running_node_is_not_disturbed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = FolderDisk(data)
    node.lock()
    assert main([*CHECK, "--data", str(data)]) == 1
    assert "is in use by process" in capsys.readouterr().err
    node.close()


def test_a_folder_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(CHECK) == 2
    assert "--data DIR" in capsys.readouterr().err
    assert main([*CHECK, "--data", str(tmp_path / "none")]) == 1
    assert "no journal found in" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_long_check_shows_how_far_it_is(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SHOWN_BYTES_MIN", 10)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main([*CHECK, "--data", str(data)]) == 0
    assert "####" in capsys.readouterr().err
