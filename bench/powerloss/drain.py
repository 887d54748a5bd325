"""The end of an era: all remaining messages are taken out by basic.get, which reports when a queue is empty."""

from __future__ import annotations

from random import Random

from bench.crash import history as h
from bench.crash import message
from recado.amqp import methods as m
from recado.broker.stream import Stream

from .client import Client
from .history import History
from .node import Node
from .people import StreamReader

A_WHILE = 1000  # milliseconds: all that waits for its time has had it


def drain(node: Node, incarnation: int, history: History, labels: dict[str, str]) -> None:
    """Empty all queues. `labels` are the names of queues in the history, where they differ."""
    drainer = Drainer(Client(node), incarnation, history, labels)
    while drainer.take_all(node):
        node.pass_time(A_WHILE)  # letters may have moved on
    for name, queue in node.broker.vhosts["/"].queues.items():
        if isinstance(queue, Stream):
            _read(node, incarnation, history, name, labels.get(name, name))


class Drainer:
    def __init__(
        self, client: Client, incarnation: int, history: History, labels: dict[str, str]
    ) -> None:
        self._client = client
        self._incarnation = incarnation
        self._history = history
        self._labels = labels
        self._tag = 0
        self._found = False

    def take_all(self, node: Node) -> bool:
        """Whether there was anything, or may be later."""
        waits = node.broker.deadline() is not None
        found = False
        for name, queue in list(node.broker.vhosts["/"].queues.items()):
            if not isinstance(queue, Stream):
                while self._take(name):
                    found = True
        node.commit()
        return found or (waits and node.broker.deadline() is not None and self._is_early(node))

    def _is_early(self, node: Node) -> bool:
        deadline = node.broker.deadline()
        return deadline is not None and deadline <= node.now + A_WHILE

    def _take(self, name: str) -> bool:
        """Take one message out, if there is one."""
        self._found = False
        self._client.ask(m.BasicGet(name), lambda method, body: self._got(name, method, body))
        self._client.read()
        if self._found:
            self._client.ack(self._tag)
        return self._found

    def _got(self, name: str, method: m.Method, body: bytes) -> None:
        if not isinstance(method, m.BasicGetOk):
            return
        self._found = True
        self._tag = method.delivery_tag
        add, queue, which = self._history.add, self._labels.get(name, name), message.parse(body)
        if which is None:
            add(h.Damaged(queue, repr(body[:80])))
        else:
            consumer = f"drain-{self._incarnation}"
            add(h.Delivered(self._incarnation, consumer, queue, which, method.redelivered))
            add(h.Acked(queue, which))


def _read(node: Node, incarnation: int, history: History, name: str, label: str) -> None:
    reader = StreamReader(name, history, Random(0), label)
    reader.join(node, incarnation)
    node.commit()
    while reader.make_room():
        node.pass_time(2)
        node.commit()
