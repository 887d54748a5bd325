"""amqplib: the AMQP client of Node programs, installed by npm as its lock file says.

The scenarios are in amqplib/scenarios.js; each runs in a process of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from workshop import system
from workshop.peers import Server
from workshop.time_limit import scale

from .traffic import PATIENCE

FOLDER = Path(__file__).parent / "amqplib"
SCENARIOS = re.findall(r"^  async (\w+)\(", (FOLDER / "scenarios.js").read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest) -> Path:
    """amqplib in pytest's cache folder, installed again only when the lock file changes."""
    (npm,) = system.need(system.NPM)
    pinned = (FOLDER / "package-lock.json").read_bytes()
    cache = request.config.cache
    assert cache is not None
    folder = cache.mkdir(f"amqplib-{hashlib.sha256(pinned).hexdigest()[:12]}")
    finished = folder / "finished"
    # Several test processes may get here at once; one installs.
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(FOLDER / name, folder)
            command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"`npm ci` failed:\n{done.stdout}{done.stderr}"
            finished.touch()
    return folder / "node_modules"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_amqplib(server: Server, node_modules: Path, scenario: str) -> None:
    (node,) = system.need(system.NODE)
    done = subprocess.run(
        [node, str(FOLDER / "scenarios.js"), scenario, server.url],
        env={**os.environ, "NODE_PATH": str(node_modules)},
        capture_output=True,
        text=True,
        timeout=scale(PATIENCE),
        check=False,
    )
    assert done.returncode == 0, done.stderr
