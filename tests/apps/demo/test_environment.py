"""The environment of the demo: its ports."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from recado.apps.demo import environment
from recado.apps.demo.environment import DEFAULT_PORTS, DemoEnvironment
from tests.console.http import Api


def test_ports_in_use_are_replaced_by_free_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(environment, "DEFAULT_PORTS", dict.fromkeys(DEFAULT_PORTS, port))
        with DemoEnvironment(tmp_path / "demo") as running:
            broker = running.broker
            ports = {broker.port, broker.management_port, broker.metrics_port}
            assert len(ports) == 3
            assert port not in ports
            assert broker.management_port is not None
            assert Api(broker.management_port).get("/api/whoami")["name"] == "guest"
            assert running.management_url == f"http://127.0.0.1:{broker.management_port}/api"
            assert running.metrics_url == f"http://127.0.0.1:{broker.metrics_port}/metrics"


def test_a_given_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        demo = DemoEnvironment(tmp_path / "demo", port=0, management_port=port, metrics_port=0)
        with pytest.raises(OSError, match=r"management\.port"), demo:
            pass
