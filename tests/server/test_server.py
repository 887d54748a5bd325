"""The server on real sockets, plain and with TLS; and how it finds out about memory."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from recado.amqp.events import MethodReceived
from recado.amqp.frames import PROTOCOL_HEADER
from recado.amqp.methods import ConnectionStart
from recado.amqp.reader import FrameReader
from recado.broker.arguments import QueueSettings
from recado.journal.disk import MemoryDisk
from recado.journal.journal import Journal
from recado.node.tls import server_context
from recado.server import committer, memory
from recado.server.committer import Committer
from recado.server.connection import now_ms
from recado.server.server import Server
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker

from .client import new_broker
from .harness import in_the_loop, new_server, soon, turns


async def _greeted(port: int, tls: ssl.SSLContext | None = None) -> bool:
    name = "localhost" if tls is not None else None
    reading, writing = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname=name
    )
    try:
        writing.write(PROTOCOL_HEADER)
        (event,) = FrameReader().feed(await reading.read(1 << 16))
        return isinstance(event, MethodReceived) and isinstance(event.method, ConnectionStart)
    finally:
        writing.close()
        await writing.wait_closed()


class Certificates:
    """The files of a certificate authority and of the certificates it signed."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        server = self.authority.issue_cert("localhost")
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        server.private_key_pem.write_to_path(self.key)
        for part in server.cert_chain_pems:
            part.write_to_path(self.certificate, append=True)

    def server(self, *, verify: bool, ca: bool = True) -> ssl.SSLContext:
        path = str(self.ca) if ca else None
        return server_context(str(self.certificate), str(self.key), path, verify=verify)

    def client(self, *, known: bool) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if known:
            self.authority.issue_cert("client.test").configure_cert(context)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@in_the_loop
async def test_a_server_listens_on_a_free_port_until_it_stops() -> None:
    server = new_server()
    port = await server.listen("127.0.0.1", 0)
    assert port > 0
    await soon(_greeted(port))
    await soon(server.stop())
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize(
    ("ca", "verify", "known", "welcome"),
    [
        (False, False, False, True),
        (True, False, False, True),
        (True, False, True, True),
        (True, True, True, True),
        (True, True, False, False),
    ],
)
@in_the_loop
async def test_tls(
    certificates: Certificates, ca: bool, verify: bool, known: bool, welcome: bool
) -> None:
    server = new_server()
    port = await server.listen("127.0.0.1", 0, certificates.server(verify=verify, ca=ca))
    try:
        seen = await asyncio.wait_for(_greeted(port, certificates.client(known=known)), 30)
    except (ssl.SSLError, ConnectionError, ValueError):
        seen = False
    assert seen is welcome
    await soon(server.stop())


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_process_knows_its_memory() -> None:
    assert 1 << 20 < memory.resident_bytes() < memory.total_bytes()


def test_a_container_may_have_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUP_LIMIT", limit)
    whole = memory.total_bytes()
    limit.write_text("max\n")
    assert memory.total_bytes() == whole
    limit.write_text("1000000\n")
    assert memory.total_bytes() == 1_000_000


def test_where_the_system_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STATM", tmp_path / "none")
    assert memory.resident_bytes() == 0


class Late:
    """Something is due at once when the waiter is notified."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def on_durable(self) -> None:
        broker, now = self._server.broker, now_ms()
        wanted = QueueSettings(expires_ms=1)
        broker.create_queue(broker.vhosts["/"], "late", wanted, None, now - 1000)


@in_the_loop
async def test_timers_that_a_sync_makes_due_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop itself syncs for a single publisher, and confirms in the same flush."""
    monkeypatch.setattr(committer, "INLINE_SYNC_MAX_S", 100.0)
    store = JournalStore(Journal(MemoryDisk()))
    server = new_server(new_broker(store=store))
    restore_broker(store, server.broker, 0)
    server.attach_committer(
        Committer(store, server.loop, server.fail, run_in_turn=server.run_in_turn)
    )
    for number in range(2):
        store.set_metadata("a", "", "fact", b"%d" % number)
        await soon(server.wait_until_durable())
    queues = server.broker.vhosts["/"].queues
    store.set_metadata("a", "", "fact", None)
    store.notify_when_durable(Late(server))
    server.begin_turn()
    server.end_turn()
    assert "late" in queues, "the loop itself synced"
    await turns()
    assert "late" not in queues
    await server.stop()
