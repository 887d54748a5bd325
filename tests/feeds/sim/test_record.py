"""The record of clean seeds: ranges grow together, and other sources begin a new one."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bench.feeds_sim.record import FEEDS, NOT_SIMULATED, ROOT, Record, fingerprint


def test_what_was_clean_is_known_to_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "clean.json"
    record = Record(file, "these")
    assert record.missing(range(1, 11)) == [range(1, 11)]
    record.add(range(1, 4))
    record.add(range(7, 9))
    assert Record(file, "these").missing(range(1, 11)) == [range(4, 7), range(9, 11)]
    assert Record(file, "these").missing(range(2, 4)) == []
    assert Record(file, "others").missing(range(1, 11)) == [range(1, 11)]


def test_a_file_that_is_none_is_begun_again(tmp_path: Path) -> None:
    file = tmp_path / "clean.json"
    file.write_text("[1")
    record = Record(file, "these")
    record.add(range(1, 4))
    assert Record(file, "these").clean == [range(1, 4)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8))), st.integers(0, 20))
def test_ranges_are_as_sets(added: list[tuple[int, int]], start: int) -> None:
    record = Record(Path("/nowhere"), "these")
    seen: set[int] = set()
    for first, count in added:
        record.join(range(first, first + count))
        seen.update(range(first, first + count))
    wanted = range(start, start + 15)
    left = [seed for each in record.missing(wanted) for seed in each]
    assert left == [seed for seed in wanted if seed not in seen]
    clean = record.clean
    assert all(one.stop < other.start for one, other in pairwise(clean))


def test_the_sources_are_those_that_decide_what_happens(tmp_path: Path) -> None:
    assert fingerprint() == fingerprint(ROOT)
    feeds = tmp_path / FEEDS
    (feeds / "transport").mkdir(parents=True)
    (feeds / "layers").mkdir()
    (feeds / "one.py").write_text("1")
    before = fingerprint(tmp_path, [FEEDS])
    (feeds / "transport" / "socket.py").write_text("2")
    (feeds / "archiver.py").write_text("2")
    assert fingerprint(tmp_path, [FEEDS]) == before
    (feeds / "layers" / "archiver.py").write_text("3")
    assert fingerprint(tmp_path, [FEEDS]) != before


def test_the_simulation_imports_no_module_that_is_left_out() -> None:
    assert all((ROOT / each).exists() for each in NOT_SIMULATED)
    names = [each.removeprefix("src/").removesuffix(".py").rstrip("/") for each in NOT_SIMULATED]
    listed = [each.replace("/", ".") for each in names]
    script = (
        "import pkgutil, sys, bench.feeds_sim as package\n"
        "for each in pkgutil.walk_packages(package.__path__, 'bench.feeds_sim.'):\n"
        "    if not each.name.endswith('__main__'):\n"
        "        __import__(each.name)\n"
        f"print([each for each in {listed} if each in sys.modules])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert run.stdout == "[]\n"
