"""Clients that are gone: nothing lists them any more, and the statistics forget them."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import recado
from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES, PROTOCOL_HEADER, encode_method_frame
from recado.amqp.methods import (
    BasicConsume,
    BasicPublish,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    Method,
    QueueDeclare,
)
from workshop.time_limit import scale

from .events import EventStream
from .http import Api

HEARTBEAT_S = 1
LISTS = ("/api/connections", "/api/channels", "/api/consumers", "/api/queues")

KILLED = """
import sys, pika
connections = [pika.BlockingConnection(pika.URLParameters(sys.argv[1])) for _ in range(3)]
for connection in connections:
    channel = connection.channel()
    for options in ({"exclusive": True}, {"auto_delete": True}):
        queue = channel.queue_declare("", **options).method.queue
        channel.basic_consume(queue, lambda *_: None)
print("ready", flush=True)
sys.stdin.read()
"""


def conversation(heartbeat: int, *methods: Method) -> bytes:
    """Everything that a client sends: the broker reads one method after the other."""
    handshake = (
        ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"),
        ConnectionTuneOk(0, FRAME_MAX_DEFAULT_BYTES, heartbeat),
        ConnectionOpen("/"),
    )
    frames = [encode_method_frame(0, each) for each in handshake]
    frames += [encode_method_frame(1, each) for each in (ChannelOpen(), *methods)]
    return PROTOCOL_HEADER + b"".join(frames)


def connect(broker: recado.Broker) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), timeout=scale(60))


def lengths(api: Api) -> list[int]:
    return [len(api.get(path)) for path in LISTS]


def await_lengths(api: Api, wanted: list[int]) -> None:
    deadline = time.monotonic() + scale(60)
    while (found := lengths(api)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


@contextmanager
def client_process(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process with three connections, each with two queues and their consumers."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def test_nothing_of_killed_clients_is_listed(broker: recado.Broker, api: Api) -> None:
    with client_process(broker.url) as process, EventStream(api.port) as stream:
        assert lengths(api) == [3, 3, 6, 6]
        process.send_signal(signal.SIGKILL)
        process.wait()
        await_lengths(api, [0, 0, 0, 0])
        for event in ("connection.closed", "channel.closed", "queue.deleted"):
            stream.find(event)


def test_nothing_of_a_silent_client_is_listed_after_its_heartbeat_timeout(
    broker: recado.Broker, api: Api
) -> None:
    """A half-open connection: nothing comes from the client, not even the end of the connection."""
    with connect(broker) as silent:
        queue = QueueDeclare(exclusive=True)
        silent.sendall(conversation(HEARTBEAT_S, queue, BasicConsume()))
        await_lengths(api, [1, 1, 1, 1])
        begun = time.monotonic()
        await_lengths(api, [0, 0, 0, 0])
        assert time.monotonic() - begun > HEARTBEAT_S / 2, (
            "the client was not closed by its silence"
        )
        metrics = api.request("GET", "/metrics").body
        assert "\nrabbitmq_connections 0\n" in metrics
        assert "\nrabbitmq_channels 0\n" in metrics


def come_and_go(broker: recado.Broker, count: int) -> None:
    """Open connections one after the other, each with a queue that is deleted with it."""
    sent = conversation(0, QueueDeclare(auto_delete=True), BasicConsume(no_ack=True))
    sent += encode_method_frame(1, BasicPublish("", "nowhere")) + bytes.fromhex(
        "02 0001 0000000e 003c 0000 0000000000000000 0000 ce"
    )
    sent += encode_method_frame(0, ConnectionClose(200, "bye"))
    closed = encode_method_frame(0, ConnectionCloseOk())
    for _ in range(count):
        with connect(broker) as client:
            client.sendall(sent)
            received = b""
            while not received.endswith(closed):
                data = client.recv(65_536)
                assert data, received[-200:]
                received += data


def test_statistics_forget_what_is_gone(broker: recado.Broker) -> None:
    running = broker._require_running()
    assert running.management is not None
    console, loop = running.management.console, running.server.loop
    sampler = console.sampler
    histories = (sampler.connections, sampler.channels, sampler.queues)

    def sample() -> None:
        asyncio.run_coroutine_threadsafe(sampler.sample(), loop).result(scale(60))

    for number in range(10):
        come_and_go(broker, 20)
        with connect(broker) as sampled:
            sampled.sendall(
                conversation(0, QueueDeclare(f"q{number}", auto_delete=True), BasicConsume())
            )
            await_lengths(Api(broker.management_port or 0), [1, 1, 1, 1])
            sample()
            assert all(len(each.newest.values) == 1 for each in histories)
        await_lengths(Api(broker.management_port or 0), [0, 0, 0, 0])
    for _ in range(2):
        sample()
    assert [(each.size, each.series_size) for each in histories] == [(0, 0)] * 3
    assert not running.server.connections
