"""Ports that are taken, and by which program."""

from __future__ import annotations

import errno
import os
import re
import socket
from pathlib import Path

import pytest

from recado.cli.doctor.diagnosis import Severity
from recado.cli.doctor.ports import ConfiguredPort, PortOwner, check_port, find_owner

from .conftest import Diagnose

SETTINGS = {
    "server.port": "recado serve --port ",
    "management.port": "recado serve --management-port ",
    "management.metrics_port": "RECADO_MANAGEMENT_METRICS_PORT=",
}
AMQP = ConfiguredPort("server.port", "127.0.0.1", 80, "recado serve --port {}")
IN_USE = OSError(errno.EADDRINUSE, "in use")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_port_that_is_taken(
    setting: str, diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECADO_MANAGEMENT_PORT", "0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv(f"RECADO_{setting.upper().replace('.', '_')}", str(port))
        flags = ["--port", str(port)] if setting == "server.port" else []
        found = diagnose("ports", *flags)
        (error,) = [each for each in found.findings if each["severity"] == "error"]
        assert f"127.0.0.1:{port} ({setting}) is in use by process {os.getpid()}" in error["found"]
        other, stop = error["fixes"]
        assert other.startswith(SETTINGS[setting])
        free = int(re.findall(r"\d+", other)[0])
        assert free > port
        socket.create_server(("127.0.0.1", free)).close()
        assert stop in (f"kill {os.getpid()}",) or stop.startswith("systemctl stop ")


def test_a_tls_port_that_is_taken(diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECADO_SERVER_CERTIFICATE", "server.pem")
    monkeypatch.setenv("RECADO_SERVER_KEY", "server.key")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = diagnose("ports", "--tls-port", str(port))
    assert found.severities == ["ok", "error"]
    assert found.findings[1]["fixes"][0].startswith("recado serve --tls-port ")


def test_a_suggested_port_is_not_the_one_of_another_listener(
    diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("RECADO_MANAGEMENT_PORT", str(port + 1))
        found = diagnose("ports", "--port", str(port))
    assert found.findings[0]["fixes"][0] != f"recado serve --port {port + 1}"


def test_an_address_of_another_machine(diagnose: Diagnose) -> None:
    found = diagnose("ports", "--host", "192.0.2.1", "--port", "5672")  # for documentation only
    assert found.severities == ["error"]
    assert "no network interface of this machine" in found.only["found"]
    assert found.only["fixes"] == ["recado serve --host 0.0.0.0"]


def test_a_host_without_an_address(diagnose: Diagnose) -> None:
    found = diagnose("ports", "--host", "nothing.invalid", "--port", "5672")
    assert found.severities == ["error"]
    assert "the host name cannot be resolved" in found.only["found"]


def test_a_port_that_needs_a_privilege() -> None:
    denied = OSError(errno.EACCES, "denied")
    finding = check_port(AMQP, denied, None, None, None)
    assert finding.severity is Severity.ERROR
    assert finding.fixes[0] == "recado serve --port 10080"


def test_a_service_is_stopped_by_systemd() -> None:
    owner = PortOwner(7, "beam.smp -W w", "rabbitmq-server.service")
    finding = check_port(AMQP, IN_USE, owner, 81, None)
    assert finding.fixes == ("recado serve --port 81", "systemctl stop rabbitmq-server.service")


def test_a_process_of_another_user() -> None:
    finding = check_port(AMQP, IN_USE, None, None, None)
    assert "that this user cannot see" in finding.found
    assert finding.fixes == ("sudo ss --listening --tcp --processes 'sport = :80'",)


def test_the_owner_is_read_from_proc(tmp_path: Path) -> None:
    """| sl | local address | remote address | st | tx_queue:rx_queue | … | inode |"""
    net, process = tmp_path / "net", tmp_path / "12"
    for folder in (net, process / "fd", tmp_path / "11" / "fd"):
        folder.mkdir(parents=True)
    row = "0: 0100007F:1628 00000000:0000 {} 00000000:00000000 00:00000000 00000000 0 0 {}\n"
    (net / "tcp").write_text("heading\n" + row.format("01", 5) + row.format("0A", 6))
    (tmp_path / "11" / "fd" / "3").symlink_to("socket:[5]")
    (process / "fd" / "3").symlink_to("socket:[6]")
    (process / "cmdline").write_text("/usr/bin/program\0--flag\0" + "x" * 100)
    (process / "cgroup").write_text("0::/system.slice/program.service\n")
    owner = find_owner(0x1628, tmp_path)
    assert owner is not None
    assert (owner.pid, owner.unit) == (12, "program.service")
    assert owner.command_line.startswith("program --flag xxx")
    assert len(owner.command_line) == 60
    assert find_owner(5673, tmp_path) is None
