"""`.ci/run` on a small project: which failures a retry forgives, and that coverage is always judged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEV = """#!/bin/sh
[ "$1" = check ] && exit 0
shift
[ $# -eq 0 ] && set -- -q --cov --cov-report=term
exec .venv/bin/python -m pytest "$@"
"""
PYPROJECT = """
[tool.pytest.ini_options]
markers = ["searching"]
[tool.coverage.run]
source = ["product"]
[tool.coverage.report]
fail_under = 100
"""
PRODUCT = """
def double(number):
    return 2 * number

def triple(number):
    return 3 * number
"""
DOUBLE = """
import product, pytest
from pathlib import Path

def test_double():
    assert product.double(2) == 4
"""
TRIPLE = """
def test_triple():
    assert product.triple(2) == 6
"""
FLAKY = """
    mark = Path("has-failed")
    if not mark.exists():
        mark.touch()
        raise AssertionError("only the first time")
"""
FLAKY_TRIPLE = f"""
def test_triple():{FLAKY}
    assert product.triple(2) == 6
"""
FLAKY_DOUBLE = f"""
def test_flaky():{FLAKY}
    assert product.double(2) == 4
"""
SEARCHING = f"""
@pytest.mark.searching
def test_search():{FLAKY}
"""
BROKEN = """
def test_broken():
    assert product.double(2) == 5
"""


@pytest.mark.parametrize(
    ("tests", "passes", "text"),
    [
        (DOUBLE + TRIPLE, True, "100%"),
        (DOUBLE, False, "Coverage failure: total of"),
        (DOUBLE + FLAKY_TRIPLE, True, "retrying the failed tests alone"),
        (DOUBLE + FLAKY_DOUBLE, False, "Coverage failure: total of"),
        (DOUBLE + TRIPLE + SEARCHING, False, "it is not retried"),
        (DOUBLE + TRIPLE + BROKEN, False, "test_broken"),
    ],
    ids=["complete", "uncovered", "flaky", "flaky and uncovered", "searching", "broken"],
)
def test_ci(tmp_path: Path, tests: str, passes: bool, text: str) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "dev").write_text(DEV)
    (tmp_path / "dev").chmod(0o755)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "product.py").write_text(PRODUCT)
    (tmp_path / "test_product.py").write_text(tests)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COV", "PYTEST", "HYPOTHESIS"))
    }
    done = subprocess.run(
        [".ci/run"],
        cwd=tmp_path,
        env={**inherited, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p pytest_cov"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stdout + done.stderr
    assert text in done.stdout
