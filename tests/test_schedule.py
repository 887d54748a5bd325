"""The order of the test files in a run with several workers."""

from __future__ import annotations

from pathlib import Path

from .schedule import LONGEST_FILES, LongestFirst
from .spark import GROUPS, group_of

ROOT = Path(__file__).parents[1]


def test_the_longest_files_exist_and_are_no_part_of_a_group() -> None:
    assert len(set(LONGEST_FILES)) == len(LONGEST_FILES)
    assert [each for each in LONGEST_FILES if not (ROOT / each).is_file()] == []
    assert [each for each in LONGEST_FILES if group_of(ROOT / each)] == []


def test_the_longest_files_start_first() -> None:
    queue = LongestFirst()
    for scope in ("tests/other.py", *reversed(LONGEST_FILES), *reversed(GROUPS), "tests/last.py"):
        queue[scope] = {}
    order = [queue.popitem(last=False)[0] for _ in range(len(queue))]
    assert order == [*GROUPS, *LONGEST_FILES, "tests/other.py", "tests/last.py"]
