"""`recado.Broker`, inside a program: with and async with, and the fixture made of it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import aio_pika
import pika
import pytest

import recado
from recado.journal.record import CorruptJournalError
from recado.node.broker import Broker
from recado.node.config import ConfigError


def round_trip(url: str) -> bytes:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"recado!")
    _, _, body = channel.basic_get(queue, auto_ack=True)
    connection.close()
    assert isinstance(body, bytes)
    return body


def test_with_runs_it_in_a_thread() -> None:
    with recado.Broker() as broker:
        assert broker.url == f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
        assert round_trip(broker.url) == b"recado!"
        port = broker.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_async_with_runs_it_in_the_loop() -> None:
    async def talk() -> bytes:
        async with recado.Broker() as broker, await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"recado!"), queue.name)
            message = await queue.get(no_ack=True)
            return message.body

    assert asyncio.run(talk()) == b"recado!"


def test_with_may_stand_in_a_coroutine() -> None:
    async def talk() -> bytes:
        with recado.Broker() as broker:
            return round_trip(broker.url)

    assert asyncio.run(talk()) == b"recado!"


def test_the_fixture_is_there_without_an_import(recado_broker: Broker) -> None:
    assert round_trip(recado_broker.url) == b"recado!"


def test_two_do_not_know_each_other_and_one_can_start_again() -> None:
    first, second = recado.Broker(), recado.Broker()
    with first, second:
        assert first.port != second.port
        round_trip(first.url)
    with first:
        round_trip(first.url)


def test_clients_are_notified_when_it_stops() -> None:
    with ThreadPoolExecutor() as pool:
        with recado.Broker() as broker:
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            listening = pool.submit(connection.process_data_events, time_limit=60)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            listening.result()
    assert closed.value.reply_code == 320


def test_start_errors_are_raised() -> None:
    with recado.Broker() as broker:
        told = rf"cannot listen on 127.0.0.1:{broker.port} \(server.port\): Address already in use"
        with pytest.raises(OSError, match=told), recado.Broker(port=broker.port):
            pass
        assert round_trip(broker.url) == b"recado!"


def test_the_configuration_comes_from_the_program_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECADO_SERVER_PORT", "nonsense")
    users = {"ana": {"password": "x", "permissions": {"/": {"read": ".*"}}}}
    with recado.Broker(config={"access": {"users": users}}) as broker:
        assert "@" not in broker.url
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            round_trip(broker.url)
    with pytest.raises(ConfigError, match="is not a setting"):
        recado.Broker(config={"server": {"prot": 1}})


@pytest.mark.parametrize(
    ("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.2", "127.0.0.2")]
)
def test_the_url_is_one_that_guest_may_use(
    monkeypatch: pytest.MonkeyPatch, host: str, reached: str
) -> None:
    core = SimpleNamespace(users={"guest"})
    running = SimpleNamespace(port=5672, server=SimpleNamespace(broker=core))
    monkeypatch.setattr(Broker, "_require_running", lambda _: running)
    assert recado.Broker(host=host).url == f"amqp://guest:guest@{reached}:5672/%2F"


def test_it_has_no_port_before_it_runs() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        _ = recado.Broker().port


def test_it_runs_once_at_a_time() -> None:
    with recado.Broker() as broker:
        with pytest.raises(RuntimeError, match="running already"), broker:
            pass
        assert round_trip(broker.url) == b"recado!"


def test_a_stream_whose_folder_is_gone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with recado.Broker(data=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        arguments = {"x-queue-type": "stream"}
        connection.channel().queue_declare("s", durable=True, arguments=arguments)
        connection.close()
    with recado.Broker(data=tmp_path):
        pass
    (folder,) = (tmp_path / "streams").iterdir()
    shutil.rmtree(folder)
    with (
        pytest.raises(CorruptJournalError, match="the folder is missing"),
        recado.Broker(data=tmp_path),
    ):
        pass
    assert not folder.exists()


FEW_FILES = """
import resource, pika, recado
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
with recado.Broker() as broker:
    pika.BlockingConnection(pika.URLParameters(broker.url)).close()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize("hard", [256, 1024])
def test_a_small_limit_of_open_files_is_raised_or_lived_with(hard: int) -> None:
    """256 is the usual soft limit on macOS."""
    program = [sys.executable, "-c", FEW_FILES.format(hard=hard)]
    ran = subprocess.run(program, check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout == f"{hard}\n"
