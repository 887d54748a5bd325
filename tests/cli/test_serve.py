"""`recado serve` as a process: its output, its end, and errors at the start."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import pika
import pytest
import trustme

from recado import Broker
from recado.cli import broker_process, main
from recado.cli.broker_process import explain_error, serve_until_signal
from recado.journal.record import encode_file_header
from recado.node.assembly import ListenError
from recado.node.config import from_mapping
from recado.server.store.journal_store import JournalStore

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the command in an empty folder; processes that a test leaves running are killed."""
    with ExitStack() as stack:

        def started(*arguments: str, **environment: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "recado", "serve", *arguments],
                cwd=tmp_path,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def announced(process: subprocess.Popen[str], scheme: str = "amqp") -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    port = re.search(rf"{scheme}://127\.0\.0\.1:(\d+)$", line)
    assert port, line
    return int(port[1])


def test_it_announces_its_port_once_it_accepts_connections(start: Start) -> None:
    process = start("--port", "0")
    with socket.create_connection(("127.0.0.1", announced(process))) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(1) == b"\x01"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(start: Start, number: signal.Signals) -> None:
    process = start("--port", "0")
    url = f"amqp://127.0.0.1:{announced(process)}"
    connection = pika.BlockingConnection(pika.URLParameters(url))
    process.send_signal(number)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=60)
    assert closed.value.reply_code == 320
    assert process.wait() == 0


def test_a_refused_login_is_in_the_log_and_not_on_standard_output(start: Start) -> None:
    process = start("--port", "0")
    url = f"amqp://guest:wrong@127.0.0.1:{announced(process)}"
    assert process.stdout is not None
    kept = process.stdout.readline()
    assert kept == "data in memory only (--data DIR stores durable data on disk)\n"
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(pika.URLParameters(url))
    process.terminate()
    output, log = process.communicate()
    assert output == ""
    assert re.search(r"^\d{4}-\d\d-\d\d .* WARNING recado.server: login refused", log, re.M)


def test_the_welcome_works_when_copied(start: Start, tmp_path: Path) -> None:
    process = start("--port", "0", "--welcome")
    announced(process)
    assert process.stdout is not None
    shown = []
    for line in iter(process.stdout.readline, ""):
        shown.append(line)
        if "Ctrl-C" in line:
            break
    (step,) = re.findall(r"^  (.*?-c '.*?')$", "".join(shown), flags=re.DOTALL | re.MULTILINE)
    output = subprocess.run(["sh", "-c", step], capture_output=True, check=True)
    assert output.stdout == b"b'recado!'\n"


def test_who_named_users_is_not_told_to_come_as_guest(start: Start) -> None:
    process = start("--port", "0", "--welcome", RECADO_ACCESS_USERS='{"ana": {"password": "x"}}')
    announced(process)
    process.terminate()
    assert process.stdout is not None
    assert process.stdout.read().count("\n") == 1


def test_a_port_in_use_is_told_with_a_way_out(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        _, told = process.communicate()
    assert process.returncode == 1
    where = f"127.0.0.1:{port}"
    assert told == (
        f"recado: {where} is in use, perhaps by another broker; --port 0 selects a free port\n"
    )


def test_of_two_ports_the_one_in_use_is_told(start: Start, certificates: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--port", "0", "--tls-port", str(port), **certificates)
        _, told = process.communicate()
    assert process.returncode == 1
    assert f"127.0.0.1:{port} is in use" in told
    assert "--tls-port 0 selects a free port" in told


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EADDRNOTAVAIL, "this machine has no address '127.0.0.1'; --host"),
        (socket.EAI_NONAME, "this machine has no address '127.0.0.1'; --host"),
        (errno.EACCES, "may not listen on 127.0.0.1:5672; use a port above 1023"),
        (errno.EMFILE, "cannot listen on 127.0.0.1:5672 (server.port): Too many open files"),
    ],
)
def test_each_failure_has_its_hint(number: int, told: str) -> None:
    cause = OSError(number, "what the loop said")
    assert told in explain_error(ListenError("server.port", "127.0.0.1", 5672, cause))


def test_an_output_that_cannot_be_written_is_no_matter_of_ports(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "recado", "serve", "--port", "0"]
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "recado: cannot write to standard output: No space left on device\n"


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    authority = trustme.CA()
    ours = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    ours.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    return {f"RECADO_SERVER_{key.upper()}": f"{key}.pem" for key in ("ca", "key", "certificate")}


def test_it_listens_with_tls_too(
    start: Start, tmp_path: Path, certificates: dict[str, str]
) -> None:
    process = start("--port", "0", "--tls-port", "0", **certificates)
    announced(process)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    parameters = pika.URLParameters(f"amqps://127.0.0.1:{announced(process, 'amqps')}")
    parameters.ssl_options = pika.SSLOptions(context, "127.0.0.1")
    pika.BlockingConnection(parameters).close()


def test_sighup_loads_the_certificates_again(
    start: Start, tmp_path: Path, certificates: dict[str, str]
) -> None:
    process = start("--port", "0", "--tls-port", "0", **certificates)
    announced(process)
    announced(process, "amqps")
    assert process.stderr is not None
    process.send_signal(signal.SIGHUP)
    assert "TLS certificate reloaded (file=certificate.pem " in process.stderr.readline()
    (tmp_path / "key.pem").write_text("")
    process.send_signal(signal.SIGHUP)
    assert "TLS certificate not reloaded" in process.stderr.readline()
    process.terminate()
    assert process.wait() == 0


def test_https_is_announced_as_such(start: Start, certificates: dict[str, str]) -> None:
    certificates.pop("RECADO_SERVER_CA")
    options = {"RECADO_MANAGEMENT_TLS": "true", "RECADO_MANAGEMENT_PORT": "0"}
    process = start("--port", "0", **certificates, **options)
    announced(process)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("management API on https://127.0.0.1:")


def test_a_file_for_tls_that_is_no_good_is_named(
    start: Start, tmp_path: Path, certificates: dict[str, str]
) -> None:
    (tmp_path / "ca.pem").unlink()
    process = start("--port", "0", "--tls-port", "0", **certificates)
    _, told = process.communicate()
    assert process.returncode == 2
    assert told == "recado: server.ca 'ca.pem': No such file or directory\n"


def test_a_data_folder_is_made_and_is_one_nodes_only(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "some" / "data"
    process = start("--port", "0", "--data", str(folder))
    announced(process)
    assert process.stdout is not None
    assert process.stdout.readline() == f"durable data in {folder}\n"
    assert (folder / "journal").is_dir()
    second = start("--port", "0", "--data", str(folder))
    _, told = second.communicate()
    assert str(folder) in told
    assert "in use" in told
    assert second.returncode == 1
    process.terminate()
    process.communicate()
    assert process.returncode == 0


def test_a_damaged_journal_is_told_and_nothing_is_served(start: Start, tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        for number in range(3):
            connection.channel().queue_declare(f"q{number}", durable=True)
        connection.close()
    [segment] = (tmp_path / "journal").glob("*.journal")
    damaged = bytearray(segment.read_bytes())
    damaged[60] ^= 1
    segment.write_bytes(damaged)
    process = start("--port", "0", "--data", str(tmp_path))
    _, told = process.communicate()
    assert str(segment) in told
    assert "recado journal check" in told
    assert process.returncode == 1


def test_a_journal_of_a_later_release_is_told(start: Start, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    written = encode_file_header(0, 0).replace(b"recado/1", b"recado/2")
    checksum = crc32(written[:-4] + bytes(4)).to_bytes(4, "little")
    (tmp_path / "journal" / f"{0:020}.journal").write_bytes(written[:-4] + checksum)
    process = start("--port", "0", "--data", str(tmp_path))
    _, told = process.communicate()
    assert told == (
        f"recado: {tmp_path}: journal format version '2' is not supported: it was written by a later release "
        "of recado; start that release\n"
    )
    assert process.returncode == 1
    assert main(["journal", "check", "--data", str(tmp_path)]) == 1


def test_a_data_folder_without_a_name_is_none(start: Start, tmp_path: Path) -> None:
    for refused in (start("--data", ""), start(RECADO_NODE_DATA="")):
        _, told = refused.communicate()
        assert re.fullmatch(r"recado: node.data \(.*\) is empty: name a folder\n", told)
        assert refused.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_cannot_be_closed_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_store: JournalStore) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JournalStore, "close", close)
    monkeypatch.setattr(broker_process, "announce", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    settings = from_mapping({"server": {"port": 0}, "node": {"data": str(tmp_path)}})
    reason = asyncio.run(serve_until_signal(settings, False))
    assert reason == "the journal cannot be closed: [Errno 28] No space left on device"


def test_the_garbage_collector_is_as_before_when_a_broker_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector belongs to the whole process, which may continue."""
    before = (list(gc.callbacks), gc.get_threshold())
    monkeypatch.setattr(broker_process, "announce", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert asyncio.run(serve_until_signal(from_mapping({"server": {"port": 0}}), False)) is None
    assert (list(gc.callbacks), gc.get_threshold()) == before


def test_nothing_of_openssl_is_loaded_without_tls(tmp_path: Path) -> None:
    """It would take a tenth of the start, and memory for the lifetime of the process."""
    script = (
        "import sys, recado.cli as cli; cli.main(sys.argv[1:]); assert '_ssl' not in sys.modules"
    )
    command = [sys.executable, "-c", script, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as broker:
        assert broker.stdout is not None
        assert b"listening" in broker.stdout.readline()
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0
