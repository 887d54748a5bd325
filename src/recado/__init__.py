"""recado: an AMQP 0-9-1 broker, a client, integration patterns, persistent feeds, actors, and Spark pipelines.

Each part has a package with its full API: `recado.client`, `recado.patterns`, `recado.feeds`, `recado.actors`,
`recado.pipeline`, `recado.selector`. This module exports the names that most programs begin with. They are
imported on first use, so `import recado` is fast: `recado.Broker` imports asyncio and the server,
`recado.__version__` nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recado.actors import Actor, ActorRef, ActorSystem, AllForOne, OneForOne
    from recado.client import connect, connect_blocking
    from recado.node.broker import Broker
    from recado.node.config import read_settings
    from recado.pipeline.archive_table import table

__version__ = "0.1.0"
__all__ = [
    "Actor",
    "ActorRef",
    "ActorSystem",
    "AllForOne",
    "Broker",
    "OneForOne",
    "__version__",
    "connect",
    "connect_blocking",
    "read_settings",
    "table",
]

_MODULES = {
    "Actor": "actors",
    "ActorRef": "actors",
    "ActorSystem": "actors",
    "AllForOne": "actors",
    "Broker": "node.broker",
    "OneForOne": "actors",
    "connect": "client",
    "connect_blocking": "client",
    "read_settings": "node.config",
    "table": "pipeline.archive_table",
}


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return getattr(import_module(f".{_MODULES[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
