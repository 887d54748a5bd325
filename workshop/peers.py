"""Start brokers as processes: recado, and RabbitMQ and NATS to compare it with.

Each context manager starts a broker on a free loopback port in a temporary folder, waits until it
speaks its protocol, and stops it by its process id:

    with rabbitmq() as server, recado() as other:
        pika.BlockingConnection(pika.URLParameters(server.url))

With `data`, a broker stores durable data in that folder, which outlives the broker; the next broker with
the same folder continues with it.

`python -m workshop.peers rabbitmq` (or `recado`, or `nats`) starts one for manual tests.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from workshop import system
from workshop.time_limit import scale

HOST = "127.0.0.1"
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"
NATS_GREETING = b"INFO"
OUR_PORTS = range(10_000, 32_000)
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Certificates:
    """PEM files for a TLS listener; with `verify`, clients need a certificate of the same CA."""

    ca: Path
    certificate: Path
    key: Path
    verify: bool = False


@dataclass(frozen=True)
class Server:
    """A running broker. Measure CPU and memory of `pid` and its children."""

    name: str
    port: int
    pid: int
    log: Path
    tls_port: int | None = None
    http_port: int | None = None
    host: str = HOST

    @property
    def nats_url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/%2F"

    @property
    def tls_url(self) -> str:
        if self.tls_port is None:
            raise ValueError(f"{self.name} was started without certificates")
        return f"amqps://guest:guest@{self.host}:{self.tls_port}/%2F"


class PeerStartError(RuntimeError):
    """A broker exited or did not speak its protocol in time; the message ends with its log."""


@contextmanager
def rabbitmq(
    *,
    port: int = 0,
    data: Path | None = None,
    certificates: Certificates | None = None,
    plugins: Sequence[str] = (),
    management: bool = False,
    settings: Mapping[str, str] | None = None,
    advanced: str = "[].",
    stop: signal.Signals = signal.SIGKILL,
) -> Iterator[Server]:
    """Start Debian's RabbitMQ as a plain process.

    `settings` are lines of its rabbitmq.conf, `advanced` is the Erlang term of its advanced.config.

    By default it is stopped by SIGKILL: a graceful stop takes 6 seconds, and what classic queues have confirmed is
    on disk. Quorum queues of 3.10 that are not empty find no leader after it.
    """
    program, epmd = system.need(system.RABBITMQ, system.EPMD)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("rabbitmq"))
        amqp, tls, http, distribution, mapper = free_ports(5)
        port = port or amqp
        lines = {"listeners.tcp.1": f"{HOST}:{port}", **(settings or {})}
        if certificates:
            lines |= {
                "listeners.ssl.1": f"{HOST}:{tls}",
                "ssl_options.cacertfile": str(certificates.ca),
                "ssl_options.certfile": str(certificates.certificate),
                "ssl_options.keyfile": str(certificates.key),
                "ssl_options.verify": "verify_peer" if certificates.verify else "verify_none",
                "ssl_options.fail_if_no_peer_cert": str(certificates.verify).lower(),
            }
        if management:
            lines |= {"management.tcp.ip": HOST, "management.tcp.port": str(http)}
            plugins = [*plugins, "rabbitmq_management"]
        config = folder / "rabbitmq.conf"
        config.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        (folder / "advanced.config").write_text(advanced + "\n")
        enabled = folder / "enabled_plugins"
        enabled.write_text(f"[{','.join(plugins)}].\n")
        names = {
            "HOME": str(folder),
            # Always the same, because the data folder contains the name; each peer has its own epmd.
            "RABBITMQ_NODENAME": "peer@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(data or folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(enabled),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": HOST,
            # The start script then execs the Erlang VM instead of supervising it, so
            # that the process started here is the one that is measured and stopped.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        environment = {key: value for key, value in os.environ.items() if "RABBITMQ" not in key}
        environment |= names
        # Start a separate epmd; otherwise Erlang starts a daemon that keeps running.
        stack.enter_context(process([epmd], folder / "epmd.log", environment))
        log = folder / "rabbitmq.log"
        started = stack.enter_context(process([program], log, environment, stop=stop))
        until_ready("RabbitMQ", started, log, lambda: port, speaks_amqp)
        yield Server(
            name="RabbitMQ",
            port=port,
            pid=started.pid,
            log=log,
            tls_port=tls if certificates else None,
            http_port=http if management else None,
        )


@contextmanager
def recado(
    *,
    port: int = 0,
    data: Path | None = None,
    certificates: Certificates | None = None,
    arguments: Sequence[str] = (),
    config: str = "",
    environment: Mapping[str, str] | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[Server]:
    """Start recado from this tree by its command line; `config` is the text of its recado.toml."""
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("recado"))
        if config:
            (folder / "recado.toml").write_text(config)
        command = [str(Path(sys.executable).with_name("recado")), "serve"]
        command += ["--host", HOST, "--port", str(port), *arguments]
        if data:
            command += ["--data", str(data)]
        names = {k: v for k, v in os.environ.items() if not k.startswith("RECADO_")}
        # An installed package has bytecode; without it a start takes twice as long.
        names.pop("PYTHONDONTWRITEBYTECODE", None)
        tls = None
        if certificates:
            (tls,) = free_ports(1)
            names |= {
                "RECADO_SERVER_TLS_PORT": str(tls),
                "RECADO_SERVER_CERTIFICATE": str(certificates.certificate),
                "RECADO_SERVER_KEY": str(certificates.key),
                "RECADO_SERVER_CA": str(certificates.ca),
                "RECADO_SERVER_VERIFY": str(certificates.verify).lower(),
            }
        log = folder / "recado.log"
        names |= environment or {}
        started = stack.enter_context(process(command, log, names, stop))
        found = until_ready("recado", started, log, lambda: announced_port(log), speaks_amqp)
        yield Server(name="recado", port=found, pid=started.pid, log=log, tls_port=tls)


@contextmanager
def nats(*, port: int = 0, data: Path | None = None) -> Iterator[Server]:
    """Start Debian's NATS server with JetStream, which stores streams in files."""
    (program,) = system.need(system.NATS)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("nats"))
        port = port or free_ports(1)[0]
        command = [program, "--jetstream", "--store_dir", str(data or folder / "streams")]
        command += ["--addr", HOST, "--port", str(port)]
        log = folder / "nats.log"
        # Stopped by SIGKILL, like RabbitMQ.
        started = stack.enter_context(process(command, log, os.environ, stop=signal.SIGKILL))
        until_ready("NATS", started, log, lambda: port, speaks_nats)
        yield Server(name="NATS", port=port, pid=started.pid, log=log)


def announced_port(log: Path) -> int | None:
    """Return the port from the line that recado prints when it accepts connections."""
    line = re.search(r"amqp://[^\s/]+:(\d+)", log.read_text(errors="replace"))
    return int(line[1]) if line else None


def free_ports(count: int) -> list[int]:
    """Return free ports, all different, because each stays bound until all are chosen.

    They are outside of the ephemeral range: the system could assign an ephemeral port to an outgoing
    connection before the peer listens on it.
    """
    with ExitStack() as stack:
        held: list[int] = []
        while len(held) < count:
            each = stack.enter_context(socket.socket())
            port = OUR_PORTS.start + secrets.randbelow(len(OUR_PORTS))
            with suppress(OSError):  # the port is in use
                each.bind((HOST, port))
                held.append(port)
        return held


@contextmanager
def temporary_folder(name: str, place: Path | None = None) -> Iterator[Path]:
    """Create a temporary folder, which is removed even if a dying process still changes it.

    It is in the system's temporary directory, which may be in memory, or in `place`.
    """
    made = tempfile.TemporaryDirectory(prefix=f"{name}-", dir=place, ignore_cleanup_errors=True)
    with made as folder:
        yield Path(folder)


@contextmanager
def process(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that writes to `log`, in its own session, so that it gets no Ctrl-C.

    It runs in the folder of its log, so that files of the current directory do not interfere.
    """
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        started.send_signal(stop)
        try:
            started.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def until_ready(
    name: str,
    started: subprocess.Popen[bytes],
    log: Path,
    find_port: Callable[[], int | None],
    speaks: Callable[[int], bool],
) -> int:
    """Wait until the broker speaks its protocol; return its port."""
    limit_s = scale(START_TIMEOUT_S)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if started.poll() is not None:
            raise PeerStartError(f"{name} exited with status {started.returncode}:\n{tail(log)}")
        port = find_port()
        if port is not None and speaks(port):
            return port
        time.sleep(0.01)
    raise PeerStartError(f"{name} did not respond within {limit_s:.0f} s:\n{tail(log)}")


def speaks_amqp(port: int) -> bool:
    """Whether a protocol header is answered with connection.start."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(PROTOCOL_HEADER)
            return connection.recv(1) == METHOD_FRAME
    except OSError:
        return False


def speaks_nats(port: int) -> bool:
    """Whether it sends a greeting; JetStream is ready before it listens."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            return connection.recv(len(NATS_GREETING)) == NATS_GREETING
    except OSError:
        return False


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


PEERS: dict[str, Callable[..., AbstractContextManager[Server]]] = {
    "rabbitmq": rabbitmq,
    "recado": recado,
    "nats": nats,
}


def main() -> None:
    """Start one broker, print its URL, and run it until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m workshop.peers", description=main.__doc__)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    chosen = parser.parse_args()
    # Block the signals instead of handling them: sigwait returns, and the broker is stopped in order.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with PEERS[chosen.peer](port=chosen.port) as server:
        url = server.nats_url if chosen.peer == "nats" else server.url
        print(f"{server.name} {url}\n  pid {server.pid}, log {server.log}", flush=True)
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
