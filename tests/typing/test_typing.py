"""The public API has the types that users expect, for mypy and pyright.

The other modules of this folder are small programs, one per part. `assert_type` checks a type; a line with
`type: ignore` is a wrong use that both type checkers must reject (an ignore that is not needed is an error).
"""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
SCRIPTS = Path(sys.executable).parent

COMMANDS = {
    "mypy": ["mypy", "tests/typing"],
    "pyright": ["pyright", "--project", "tests/typing", "--pythonpath", sys.executable],
}


@pytest.mark.timeout(400)  # the first run of mypy has no cache, the first of pyright downloads it
@pytest.mark.parametrize("checker", COMMANDS)
def test_programs_have_the_expected_types(checker: str) -> None:
    program, *arguments = COMMANDS[checker]
    result = subprocess.run(
        [SCRIPTS / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
