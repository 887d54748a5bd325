"""The figures on wording: each row counts its own phrases and names, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workshop import wording


def measured(source: str, module: str = "module.py") -> wording.Survey:
    found = wording.Survey()
    wording.measure(found, module, source)
    return found


def value(found: wording.Survey, name: str) -> float:
    (row,) = [row for row in wording.rows(found) if name in row.name]
    return row.value


def test_comments_and_docstrings_are_counted_and_code_is_not() -> None:
    found = measured(
        '"""Two words."""\n'
        "who = 'nobody'  # type: ignore[assignment]\n"
        "LIMIT = 1\n"
        '"""Three more words."""\n'
        "# one `who` is code\n"
    )
    assert found.words == 2 + 3 + 3
    assert found.people == 0


def test_frequencies_are_per_thousand_words() -> None:
    found = measured('"""Who gives what is given, returns the buffer and retries."""\n')
    assert found.words == 10
    assert value(found, "who,") == 100
    assert value(found, "what is") == 100
    assert value(found, '"gives"') == 100
    assert value(found, '"returns"') == 100
    assert value(found, "terms of the field") == 200


def test_a_phrase_continues_on_the_next_line_of_a_comment() -> None:
    assert measured("# It writes what\n# is pending.\n").headless == 1
    assert measured("# It says what\n\nx = 1  # is pending.\n").headless == 0


@pytest.mark.parametrize(
    "text", ["what it does", "what happens next", "on whose behalf", "the other side"]
)
def test_plain_phrases_are_not_counted(text: str) -> None:
    found = measured(f"# {text}\n")
    assert (found.people, found.headless) == (0, 0)


@pytest.mark.parametrize(
    ("module", "participle"),
    [
        ("broker/gathering.py", True),
        ("server/store/pending.py", True),
        ("actors/remote/unheard.py", True),
        ("actors/failing/__init__.py", True),
        ("self_sizing.py", True),
        ("broker/binding.py", False),
        ("feeds/feed.py", False),
        ("client/blocking.py", False),
        ("broker/queue.py", False),
        ("apps/trading/__init__.py", False),
    ],
)
def test_modules_named_by_a_participle(module: str, participle: bool) -> None:
    assert wording.is_participle(module) is participle
    assert bool(measured("", module).participle_modules) is participle


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("SYNC_TIMEOUT_S", True),
        ("READ_BYTES", True),
        ("FILTER_SIZE_BYTES_MAX", True),
        ("MAX_EXPIRY_MS", True),
        ("RETRY_COUNT", True),
        ("PEERS_MAX", True),
        ("MESSAGES_PER_TURN", True),
        ("_LOAD_FACTOR_MAX", True),
        ("NOT_FOUND_CODE", True),
        ("QUICK", False),
        ("PEERS_MOST", False),
        ("CLOSE_SECONDS", False),
        ("MAX", False),
        ("ADDRESS_MAX", False),
        ("CHUNK_PER_TURN", False),
        ("MESSAGES", False),
    ],
)
def test_names_of_numbers(name: str, unit: bool) -> None:
    assert wording.has_unit(name) is unit


def test_only_numbers_of_modules_are_constants() -> None:
    found = measured(
        "A: Final = 1\nB = 2.5 * A\nC = -(1 << 20)\n"
        "D = True\nE = 'text'\nF = len('x')\nG = A\nh = 4\nclass K:\n    L = 5\n"
    )
    assert sorted(found.numeric_constants) == ["A", "B", "C"]


def test_names_used_more_than_once() -> None:
    found = wording.Survey()
    wording.measure(found, "a.py", '"""X1  One.\nX2  Two."""\nclass Batch: ...\nclass Other: ...\n')
    wording.measure(found, "b.py", '"""X1  Another, see X2."""\nclass Batch: ...\n')
    assert found.repeated_classes() == {"Batch": ["a.py", "b.py"]}
    assert found.repeated_labels() == {"X1": ["a.py", "b.py"]}


def test_exceptions_end_in_error() -> None:
    found = wording.Survey()
    wording.measure(found, "a.py", "class Base(Exception): ...\nclass Fine(Plain): ...\n")
    wording.measure(found, "b.py", "class Lost(a.Base): ...\nclass LostError(Lost): ...\n")
    wording.measure(found, "c.py", "class Loop(Loop): ...\nclass Slow(UserWarning): ...\n")
    assert set(found.unsuffixed_exceptions()) == {"Base", "Lost", "Slow"}


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gathering.py").write_text('"""Who waits."""\nQUICK = 1\n')
    (tmp_path / "made_pb2.py").write_text('"""Who waits."""\n')
    assert wording.main([str(tmp_path), "--names"]) == 0
    table = capsys.readouterr().out
    assert "1 modules, 2 words" in table
    assert "QUICK: gathering.py" in table
    assert wording.main([str(tmp_path), "--json", "--strict"]) == 1
    report = json.loads(capsys.readouterr().out)
    constants = report["rows"]["numeric constants without unit or count"]
    assert constants == {"value": 1, "aim": "0", "met": False, "names": {"QUICK": ["gathering.py"]}}


def test_plain_source_meets_every_aim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "buffer.py").write_text('"""Flush the buffer; returns the LSN."""\nFLUSH_S = 1\n')
    assert wording.main([str(tmp_path), "--strict"]) == 0
    assert "missed" not in capsys.readouterr().out


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        wording.main([str(tmp_path / "none")])


def test_the_package_meets_every_aim() -> None:
    """Also that invariant labels are unique, and that exceptions end in `Error`."""
    rows = wording.rows(wording.survey([wording.PACKAGE]))
    assert [row.name for row in rows if not row.met] == []
