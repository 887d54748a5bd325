"""Limits of open files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recado.cli.doctor.diagnosis import Severity
from recado.cli.doctor.open_files import RESERVED_FILES_COUNT, check_open_files
from recado.server.open_files import FileBudget

LIMIT = 512


@pytest.mark.parametrize(
    ("flags", "severity", "status"),
    [
        ([], "warning", 0),
        (["--connections", "2000"], "error", 1),
        (["--connections", "9"], "ok", 0),
    ],
)
def test_low_limits(tmp_path: Path, flags: list[str], severity: str, status: int) -> None:
    code = f"""if True:
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
        from recado.cli import main
        sys.exit(main(sys.argv[1:]))
    """
    command = [sys.executable, "-c", code, "doctor", "--json", "--port", "0", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    findings = json.loads(done.stdout)["findings"]
    (found,) = [each for each in findings if each["check"] == "open files"]
    assert (found["severity"], done.returncode) == (severity, status)
    assert f"soft {LIMIT}, hard {LIMIT}; they allow " in found["found"]
    if status:
        assert found["fixes"][0].startswith("ulimit -n 2320 ")
        assert "LimitNOFILE=2320" in found["fixes"][1]


@pytest.mark.parametrize("expected", [1, 100, 1_000, 50_000])
def test_the_suggested_limit_suffices(expected: int) -> None:
    allowed = FileBudget(expected + RESERVED_FILES_COUNT).connections
    assert allowed is not None
    assert allowed >= expected


def test_no_limit() -> None:
    finding = check_open_files(1024, None, 1_000_000)
    assert finding.severity is Severity.OK
    assert "hard unlimited" in finding.found
