"""Probes while a node recovers its data: liveness never fails, readiness waits, and the API takes the port over."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

import recado
from recado.node import assembly
from recado.node.data_folder import DataFolder
from recado.node.startup_probe import StartupProbe, bind_sockets
from tests.certificate_folder import CertificateFolder
from tests.console.http import Api
from workshop.peers import free_ports
from workshop.time_limit import scale

HOST = "127.0.0.1"
LIVE, READY = "/health/live", "/health/ready"


@pytest.fixture
def probe() -> Iterator[StartupProbe]:
    started = StartupProbe(HOST, 0, None, "/broker")
    started.start()
    yield started
    started.close()


def port_of(probe: StartupProbe) -> int:
    port: int = probe.sockets[0].getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", LIVE, 200),
        ("GET", f"{LIVE}?x=1", 200),
        ("GET", f"/broker{LIVE}", 200),
        ("GET", READY, 503),
        ("GET", f"/broker{READY}", 503),
        ("GET", "/api/overview", 503),
        ("PUT", "/api/vhosts/x", 503),
    ],
)
def test_everything_but_liveness_waits(
    probe: StartupProbe, method: str, path: str, status: int
) -> None:
    reply = Api(port_of(probe), "").request(method, path)
    assert reply.status == status
    if status == 200:
        assert reply.body == {"status": "ok"}
    else:
        assert reply.body["reason"] == "the node recovers its data"
    assert Api(port_of(probe), "").request("HEAD", path).body == ""


@pytest.mark.parametrize("sent", [b"", b"\x00\x01", b"GET", b"x" * 100_000, b"\xff\xff\r\n\r\n"])
def test_other_clients_do_not_disturb_it(probe: StartupProbe, sent: bytes) -> None:
    with socket.create_connection((HOST, port_of(probe)), timeout=scale(60)) as peer:
        peer.sendall(sent)
        assert Api(port_of(probe), "").get(LIVE) == {"status": "ok"}


def test_the_sockets_go_on_listening_for_the_next_server(probe: StartupProbe) -> None:
    port = port_of(probe)
    sockets = probe.take_sockets()
    with socket.create_connection((HOST, port), timeout=scale(60)) as waiting:
        waiting.sendall(b"hello\n")

        async def serve() -> bytes:
            received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                received.set_result(await reader.readline())
                writer.close()

            async with await asyncio.start_server(answer, sock=sockets[0]):
                return await received

        assert asyncio.run(serve()) == b"hello\n"


def test_a_port_in_use_is_noticed_before_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(assembly, "build_broker")
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        node = recado.Broker(data=tmp_path, config={"management": {"port": port}})
        with pytest.raises(assembly.ListenError, match=r"management\.port"):
            node.__enter__()


def test_all_addresses_of_a_host_are_bound_or_none() -> None:
    (port,) = free_ports(1)
    sockets = bind_sockets("localhost", port)
    assert {each.getsockname()[1] for each in sockets} == {port}
    with pytest.raises(OSError, match="in use"):
        bind_sockets("localhost", port)
    for each in sockets:
        each.close()


class Recovery:
    """A recovery that waits until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self._may_end = threading.Event(), threading.Event()
        recover = DataFolder.recover

        def pause(folder: DataFolder, *arguments: object) -> None:
            self.has_begun.set()
            assert self._may_end.wait(scale(60))
            recover(folder, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(DataFolder, "recover", pause)

    def end(self) -> None:
        self._may_end.set()


@pytest.mark.parametrize("tls", [False, True])
def test_liveness_never_fails_during_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    recovery = Recovery(monkeypatch)
    (port,) = free_ports(1)
    config: dict[str, dict[str, object]] = {"management": {"port": port, "tls": tls}}
    context = None
    if tls:
        folder = CertificateFolder(tmp_path)
        config["server"] = folder.config()["server"]
        context = ssl.create_default_context(cafile=folder.ca)
    anonymous = Api(port, "", tls=context)
    node = recado.Broker(data=tmp_path / "data", config=config)
    is_over = threading.Event()

    def poll() -> list[int]:
        statuses = []
        while not is_over.is_set():
            statuses.append(anonymous.request("GET", LIVE).status)
        return statuses

    with ThreadPoolExecutor() as pool:
        starting = pool.submit(node.__enter__)
        assert recovery.has_begun.wait(scale(60))
        polled = pool.submit(poll)
        try:
            assert anonymous.request("GET", READY).status == 503
            recovery.end()
            starting.result(scale(60))
            deadline = time.monotonic() + scale(60)
            while anonymous.request("GET", READY).status != 200:
                assert time.monotonic() < deadline
            assert Api(port, tls=context).get("/api/whoami")["name"] == "guest"
        finally:
            recovery.end()
            is_over.set()
            wait((polled,), scale(60))
            wait((starting,), scale(60))
            node.__exit__(None, None, None)
        statuses = polled.result()
    assert statuses
    assert set(statuses) == {200}
