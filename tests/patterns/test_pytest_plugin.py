"""The fixture `recado_harness`, in a pytest run of its own, as in the tests of a program."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio

from recado.patterns import Messaging


def test_an_order_is_accepted(recado_harness):
    app = Messaging("amqp://production.example.com")

    @app.subscribe("orders")
    async def handle(order: int) -> str:
        return "accepted"

    async def run() -> None:
        async with recado_harness(app) as harness:
            assert await app.request("orders", 1, str) == "accepted"
            await harness.settled()
            assert harness.failures == []

    asyncio.run(run())
"""


def test_the_fixture_runs_an_application(tmp_path: Path) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM)
    # Loaded by its module, and so not by its entry point as well.
    plugin = ["-p", "no:recado_patterns", "-p", "recado.patterns.pytest_plugin"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_the_plugin_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "import pytest\n"
        "import recado\n"
        "before = set(sys.modules)\n"
        "import recado.patterns.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "['recado.patterns', 'recado.patterns.pytest_plugin']\n"
