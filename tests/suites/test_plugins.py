"""The plugins that lead a suite to a broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suites.catalogue import PLUGINS

CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--use-tls", action="store_true")
"""
PORTS = """
import pika

def test_connections_go_to_our_ports():
    assert pika.URLParameters("amqps://localhost:5671/%2F").port == 7001
    assert pika.ConnectionParameters(port=5672).port == 7002
    assert pika.ConnectionParameters(port=5673).port == 5673
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """As much of pika's test suite as the plugin needs."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_ports.py").write_text(PORTS)
    return tmp_path


def run_pytest(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    names = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    names |= {"SUITE_AMQPS_PORT": "7001", "SUITE_AMQP_PORT": "7002", "PYTHONPATH": str(PLUGINS)}
    command = [sys.executable, "-m", "pytest", "-p", "pika_port", *options]
    return subprocess.run(
        command, cwd=suite, env=names, capture_output=True, text=True, check=False
    )


def test_pikas_fixed_ports_lead_to_our_broker(suite: Path) -> None:
    done = run_pytest(suite, "--use-tls")
    assert done.returncode == 0, done.stdout + done.stderr


def test_pikas_tests_do_not_silently_run_without_tls(suite: Path) -> None:
    """Workers of pytest-xdist have another sys.argv, into which pika's tests look."""
    done = run_pytest(suite, "--use-tls", "-n", "1")
    assert done.returncode != 0
    assert "--use-tls has no effect here" in done.stdout + done.stderr
