"""Rules of construction that no linter checks: size and names of modules, numbers of decisions."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "workshop", "bench", "suites")
MODULES = sorted(
    path for folder in FOLDERS if (ROOT / folder).is_dir() for path in (ROOT / folder).rglob("*.py")
)
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
# From 400 lines on a module deserves a look; one that is a single state machine or table may be longer.
MODULE_LINES_MAX = 800


def test_every_module_is_short_enough_to_read() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {path for path, length in lengths.items() if length > MODULE_LINES_MAX} == set()


def test_every_module_is_named_for_its_subject() -> None:
    assert not [path for path in MODULES if path.stem in VAGUE]


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "src").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def test_every_decision_has_its_number() -> None:
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [re.match(r"(\d{4})-[a-z0-9-]+\.md$", file.name) for file in files]
    assert all(numbers)
    assert [int(number[1]) for number in numbers if number] == list(range(1, len(files) + 1))
