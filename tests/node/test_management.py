"""The HTTP API of a node: it needs an extra, and a port."""

from __future__ import annotations

import subprocess
import sys

import pytest

import recado
from recado.node.config import ConfigError

# As in an installation without the extra `console`.
WITHOUT_EXTRA = """
import sys
sys.modules[sys.argv.pop(1)] = None
from recado.cli import main
sys.exit(main())
"""


def run_without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, package, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_extra_the_pip_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_without("aiohttp", "serve", "--port", "0", "--management-port", "0")
    assert done.returncode == 2
    assert done.stderr == (
        "recado: management.port needs the extra 'console' (aiohttp is missing):"
        " pip install 'recado[console]'\n"
    )
    for module in list(sys.modules):
        if module.startswith("recado.console"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'recado\[console\]'"),
        recado.Broker(config={"management": {"port": 0}}),
    ):
        pass


def test_it_is_off_unless_it_is_enabled() -> None:
    program = (
        "import sys, recado\n"
        "with recado.Broker() as broker:\n"
        "    print(broker.management_port, 'aiohttp' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None False\n"
