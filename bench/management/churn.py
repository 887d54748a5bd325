"""Memory while very many short connections come and go, each with a queue that is deleted with it.

Each client opens a connection and a channel, declares an auto-delete queue, binds it, consumes, publishes a message
to it, and closes the connection. Meanwhile the node is administered, and a client follows its events. The figure
is the growth of the resident memory after the first fifth of the clients, which fills caches and histories of
bounded size.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

from bench.book import Book, NotMeasuredError
from bench.fairness.wire import READ_BYTES, published, rendered
from bench.management.administration import administered
from bench.management.scene import CONNECT_TIMEOUT_S, LOGIN, Node, running
from bench.plan import Plan
from bench.processes import resident_megabytes
from bench.scenario import Sample, Side, limit
from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES, PROTOCOL_HEADER, encode_method_frame
from recado.amqp.methods import (
    BasicConsume,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    QueueBind,
    QueueDeclare,
)

CLIENTS_COUNT, QUICK_CLIENTS_COUNT = 1_000_000, 10_000
WORKERS_COUNT = 8  # clients at the same time
PORTIONS_COUNT = 50
FILLING_PORTIONS_COUNT = PORTIONS_COUNT // 5
UI_INTERVAL_S = 5.0  # in which RabbitMQ's web interface requests its lists

MEMORY = limit("churn-memory", "memory, short connections and queues", "MB")
SCENARIOS = (MEMORY,)


def conversation(routing_key: str) -> bytes:
    """Everything that a client sends, which the broker reads one after the other."""
    handshake = (
        ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"),
        ConnectionTuneOk(0, FRAME_MAX_DEFAULT_BYTES, 0),
        ConnectionOpen("/"),
    )
    # An empty name stands for the queue that was declared last.
    use = (
        ChannelOpen(),
        QueueDeclare(auto_delete=True),
        QueueBind(exchange="amq.topic", routing_key=routing_key),
        BasicConsume(no_ack=True),
    )
    return b"".join(
        (
            PROTOCOL_HEADER,
            *(encode_method_frame(0, method) for method in handshake),
            rendered(*use),
            published("amq.topic", routing_key, b"short"),
            encode_method_frame(0, ConnectionClose(200, "bye")),
        )
    )


CLOSED = encode_method_frame(0, ConnectionCloseOk())


def come_and_go(node: Node, count: int, worker: int) -> None:
    """Be `count` clients, one after the other. Raises NotMeasuredError."""
    sent = conversation(f"churn.{worker}")
    for _ in range(count):
        received = b""
        with socket.create_connection(
            (node.server.host, node.server.port), timeout=CONNECT_TIMEOUT_S
        ) as client:
            client.sendall(sent)
            while not received.endswith(CLOSED):
                data = client.recv(READ_BYTES)
                if not data:
                    raise NotMeasuredError(f"the connection was closed after {received[-200:]!r}")
                received += data


@contextmanager
def following_events(node: Node) -> Iterator[None]:
    """Read the event stream during the block."""
    with socket.create_connection(
        (node.server.host, node.http_port), timeout=CONNECT_TIMEOUT_S
    ) as client:
        head = f"GET /api/events HTTP/1.1\r\nhost: x\r\nauthorization: Basic {LOGIN}\r\n\r\n"
        client.sendall(head.encode())
        reading = Thread(target=discard, args=(client,))
        reading.start()
        try:
            yield
        finally:
            client.shutdown(socket.SHUT_RDWR)
            reading.join()


def discard(client: socket.socket) -> None:
    while client.recv(READ_BYTES):
        pass


def run(folder: Path, plan: Plan, book: Book) -> Iterator[str]:
    """Take one sample, which every round has; yield the name of the scenario."""
    if not plan.wants(MEMORY.name):
        return
    count = QUICK_CLIENTS_COUNT if plan.quick else CLIENTS_COUNT
    with (
        book.measuring(MEMORY.name),
        running(Side.RECADO, folder / "churn", book) as node,
        administered(node, interval=UI_INTERVAL_S),
        following_events(node),
        ThreadPoolExecutor(WORKERS_COUNT) as pool,
    ):
        megabytes: list[float] = []
        begun = time.monotonic()
        each = count // PORTIONS_COUNT // WORKERS_COUNT
        for _ in range(PORTIONS_COUNT):
            list(pool.map(partial(come_and_go, node, each), range(WORKERS_COUNT)))
            megabytes.append(resident_megabytes(node.server.pid))
        rate = count / (time.monotonic() - begun)
        before, after = (
            megabytes[FILLING_PORTIONS_COUNT - 1],
            max(megabytes[-PORTIONS_COUNT // 5 :]),
        )
        details = {"rate": rate, "megabytes": after, "megabytes_before": before}
        for _ in range(plan.rounds):
            book.enter(MEMORY.name, Side.RECADO, Sample(max(0.0, after - before), details))
    yield MEMORY.name
