"""Documents for tests of imports."""

from __future__ import annotations

from itertools import count
from typing import Any

from recado.broker.broker import Broker
from recado.broker.store import MessageStore

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


def new_broker(store: MessageStore | None = None) -> Broker:
    return Broker(map(str, count(1)).__next__, store=store)


def exchange(name: str, kind: str = "topic", **fields: object) -> dict[str, object]:
    return {
        "name": name, "vhost": "/", "type": kind, "durable": True, "auto_delete": False
    } | fields  # fmt: skip


def queue(name: object, **fields: object) -> dict[str, object]:
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False} | fields


def binding(source: str, end: str, kind: str = "queue", **fields: object) -> dict[str, object]:
    return {
        "source": source, "vhost": "/", "destination": end, "destination_type": kind,
        "routing_key": "",
    } | fields  # fmt: skip


def policy(name: str, pattern: str = ".*", **fields: object) -> dict[str, object]:
    return {
        "vhost": "/",
        "name": name,
        "pattern": pattern,
        "definition": {"max-length": 1},
    } | fields


def many(count: int, **sections: object) -> dict[str, Any]:
    """Return a document with so many queues, and a binding of each."""
    queues = [queue(f"q{number}") for number in range(count)]
    bindings = [binding("amq.topic", f"q{n}", routing_key=f"a.{n}") for n in range(count)]
    return {"queues": queues, "bindings": bindings, **sections}
