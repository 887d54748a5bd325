"""The administered broker: many queues, connections and consumers, and the ports of its HTTP API and metrics."""

from __future__ import annotations

import base64
import http.client
import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.book import Book, NotMeasuredError
from bench.fairness.wire import Client
from bench.scenario import Side
from recado.amqp.methods import BasicConsume, BasicConsumeOk
from workshop import peers
from workshop.peers import Server

REQUEST_TIMEOUT_S = 300.0
CONNECT_TIMEOUT_S = 60.0
LOGIN = base64.b64encode(b"guest:guest").decode()
PEER_NAME = "RabbitMQ"


@dataclass(frozen=True)
class Size:
    """How many objects the broker has."""

    queues: int
    connections: int
    consumers: int


FULL_SIZE = Size(queues=20_000, connections=2_000, consumers=5_000)
QUICK_SIZE = Size(queues=2_000, connections=200, consumers=500)


@dataclass(frozen=True)
class Node:
    """A broker with its management API."""

    server: Server
    http_port: int
    metrics_port: int


def request(node: Node, method: str, path: str, body: bytes | None = None) -> int:
    """Send a request, and read and discard the answer; return its size in bytes. Raises NotMeasuredError."""
    connection = http.client.HTTPConnection(
        node.server.host, node.http_port, timeout=REQUEST_TIMEOUT_S
    )
    headers = {"authorization": f"Basic {LOGIN}", "content-type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        size = sum(len(part) for part in iter(lambda: response.read(1 << 18), b""))
    except (OSError, http.client.HTTPException) as error:
        raise NotMeasuredError(f"{node.server.name}: {method} {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        raise NotMeasuredError(f"{node.server.name}: {method} {path}: status {response.status}")
    return size


@contextmanager
def running(
    side: Side, folder: Path, book: Book, environment: Mapping[str, str] | None = None
) -> Iterator[Node]:
    """Start a broker that stores its data in `folder`; it is killed at the end."""
    http_port, metrics_port = peers.free_ports(2)
    started: AbstractContextManager[Server]
    if side is Side.PEER:
        settings = {
            "management.tcp.ip": peers.HOST,
            "management.tcp.port": str(http_port),
            "prometheus.tcp.ip": peers.HOST,
            "prometheus.tcp.port": str(metrics_port),
        }
        plugins = ("rabbitmq_management", "rabbitmq_prometheus")
        started = peers.rabbitmq(data=folder, settings=settings, plugins=plugins)
        book.peer = PEER_NAME
    else:
        started = peers.recado(
            data=folder,
            arguments=("--management-port", str(http_port)),
            environment={
                "RECADO_MANAGEMENT_METRICS_PORT": str(metrics_port),
                **(environment or {}),
            },
            stop=signal.SIGKILL,
        )
    try:
        with started as server:
            yield Node(server, http_port, metrics_port)
    except peers.PeerStartError as error:
        raise NotMeasuredError(str(error).strip().splitlines()[-1]) from error


@contextmanager
def populated(side: Side, size: Size, folder: Path, book: Book) -> Iterator[Node]:
    """Start a broker with durable queues, and connections whose consumers wait for messages."""
    with running(side, folder, book) as node, ExitStack() as clients:
        queues = [
            {
                "vhost": "/",
                "name": f"orders.{number:05}",
                "durable": True,
                "auto_delete": False,
                "arguments": {},
            }
            for number in range(size.queues)
        ]
        request(node, "POST", "/api/definitions", json.dumps({"queues": queues}).encode())
        connected = [
            clients.enter_context(Client(node.server.host, node.server.port, CONNECT_TIMEOUT_S))
            for _ in range(size.connections)
        ]
        for number in range(size.consumers):
            queue = queues[number * size.queues // size.consumers]["name"]
            connected[number % size.connections].call(BasicConsume(str(queue)), BasicConsumeOk)
        yield node
