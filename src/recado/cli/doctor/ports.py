"""Ports: whether the configured ones can be bound, and which program uses them otherwise."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from recado.node.address import format_address
from recado.node.settings import Settings

from .diagnosis import Finding, Severity

CHECK: Final = "ports"
PROC: Final = Path("/proc")
LISTEN_STATE: Final = "0A"
COMMAND_LINE_MAX_COUNT: Final = 60
"""Characters of a command line that are shown."""
CANDIDATE_COUNT: Final = 100
"""Ports after the configured one that are tried to suggest a free one."""
PRIVILEGED_PORT_SHIFT_COUNT: Final = 10_000
"""Added to a port below 1024 to suggest another one."""


class ConfiguredPort(NamedTuple):
    """A configured listener: the setting of its port, and the command that chooses another port."""

    key: str
    host: str
    port: int
    command: str

    def __str__(self) -> str:
        return f"{format_address(self.host, self.port)} ({self.key})"


class PortOwner(NamedTuple):
    """The process that listens on a port, with its systemd unit if it has one."""

    pid: int
    command_line: str
    unit: str = ""


def list_listeners(settings: Settings) -> Iterator[ConfiguredPort]:
    server, management = settings.server, settings.management
    yield ConfiguredPort("server.port", server.host, server.port, "recado serve --port {}")
    if server.tls_port is not None:
        yield ConfiguredPort(
            "server.tls_port", server.host, server.tls_port, "recado serve --tls-port {}"
        )
    if management.port is None:
        return
    host = management.host or server.host
    yield ConfiguredPort(
        "management.port", host, management.port, "recado serve --management-port {}"
    )
    if management.metrics_port is not None:
        command = "RECADO_MANAGEMENT_METRICS_PORT={} recado serve"
        yield ConfiguredPort("management.metrics_port", host, management.metrics_port, command)


def inspect_ports(settings: Settings, broker_pid: int | None) -> Iterator[Finding]:
    """Check every configured port; `broker_pid` is the broker that has locked the data folder."""
    listeners = list(list_listeners(settings))
    ports = {listener.port for listener in listeners}
    for listener in listeners:
        error = None if listener.port == 0 else find_bind_error(listener.host, listener.port)
        is_used = error is not None and error.errno == errno.EADDRINUSE
        owner = find_owner(listener.port) if is_used else None
        free_port = find_free_port(listener, ports) if is_used else None
        yield check_port(listener, error, owner, free_port, broker_pid)


def check_port(
    listener: ConfiguredPort,
    error: OSError | None,
    owner: PortOwner | None,
    free_port: int | None,
    broker_pid: int | None,
) -> Finding:
    if listener.port == 0:
        return Finding(CHECK, Severity.OK, f"{listener.key} is 0: a free port is chosen")
    if error is None:
        return Finding(CHECK, Severity.OK, f"{listener} is free")
    if owner is not None and owner.pid == broker_pid:
        found = f"{listener} is in use by the broker on the data folder (process {owner.pid})"
        return Finding(CHECK, Severity.OK, found)
    if error.errno == errno.EADDRINUSE:
        return _describe_used(listener, owner, free_port)
    found, fixes = _describe_unusable(listener, error)
    reason = "the broker cannot listen, so it does not start"
    return Finding(CHECK, Severity.ERROR, found, reason, fixes)


def _describe_unusable(listener: ConfiguredPort, error: OSError) -> tuple[str, tuple[str, ...]]:
    """Return what is wrong with an address, and the commands that fix it."""
    if isinstance(error, socket.gaierror):
        found = f"{listener}: the host name cannot be resolved: {error.strerror}"
        return found, ("recado serve --host 0.0.0.0",)
    match error.errno:
        case errno.EADDRNOTAVAIL:
            found = f"{listener}: no network interface of this machine has this address"
            return found, ("recado serve --host 0.0.0.0",)
        case errno.EACCES:
            return f"{listener}: this user may not listen on ports below 1024", (
                listener.command.format(listener.port + PRIVILEGED_PORT_SHIFT_COUNT),
                "systemctl edit recado   # [Service] AmbientCapabilities=CAP_NET_BIND_SERVICE",
            )
        case _:
            return f"{listener} cannot be bound: {error.strerror or error}", ()


def _describe_used(
    listener: ConfiguredPort, owner: PortOwner | None, free_port: int | None
) -> Finding:
    fixes = [] if free_port is None else [listener.command.format(free_port)]
    if owner is None:
        found = f"{listener} is in use by a process that this user cannot see"
        fixes.append(f"sudo ss --listening --tcp --processes 'sport = :{listener.port}'")
    else:
        found = f"{listener} is in use by process {owner.pid}: {owner.command_line}"
        fixes.append(f"systemctl stop {owner.unit}" if owner.unit else f"kill {owner.pid}")
    reason = "two programs cannot listen on one port, so the broker does not start"
    return Finding(CHECK, Severity.ERROR, found, reason, tuple(fixes))


def find_bind_error(host: str, port: int) -> OSError | None:
    """Bind the addresses of a host for a moment, as the broker does; return the first error."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        return error
    return None


def find_free_port(listener: ConfiguredPort, configured: Container[int]) -> int | None:
    """Return the first free port after that of a listener; None if there is none nearby."""
    last = min(listener.port + CANDIDATE_COUNT, 65_535)
    for port in range(listener.port + 1, last + 1):
        if port not in configured and find_bind_error(listener.host, port) is None:
            return port
    return None


def find_owner(port: int, proc: Path = PROC) -> PortOwner | None:
    """Return the process that listens on a port; None if it is not visible to this user."""
    sockets = {f"socket:[{inode}]" for inode in _list_listening_inodes(port, proc)}
    if not sockets:
        return None
    for process in proc.iterdir():
        if process.name.isdigit() and _has_descriptor(process / "fd", sockets):
            return PortOwner(int(process.name), _read_command_line(process), _read_unit(process))
    return None


def _list_listening_inodes(port: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port.

    A line of the kernel's tables: | sl | local address:port | remote | state | … |; the tenth word is the inode.
    """
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN_STATE and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]


def _has_descriptor(folder: Path, targets: set[str]) -> bool:
    with suppress(OSError):  # another user's process, or one that has ended
        for descriptor in folder.iterdir():
            with suppress(OSError):
                if os.readlink(descriptor) in targets:  # noqa: PTH115 (the target is not a path)
                    return True
    return False


def _read_command_line(process: Path) -> str:
    """Return the program without its folder, and its arguments, shortened."""
    with suppress(OSError):
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        text = " ".join([words[0].rpartition("/")[2], *words[1:]]).strip()
        if len(text) > COMMAND_LINE_MAX_COUNT:
            return f"{text[: COMMAND_LINE_MAX_COUNT - 1]}…"
        return text
    return "(unknown program)"


def _read_unit(process: Path) -> str:
    """Return the name of the system service that the process belongs to; empty if it has none."""
    with suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            group = line.rpartition(":")[2]
            last = group.rpartition("/")[2]
            if group.startswith("/system.slice/") and last.endswith(".service"):
                return last
    return ""
