"""recado: a message broker that every AMQP 0-9-1 client uses unchanged, feeds that remember,
actors, and pipelines on Spark.

The public names are resolved when first used, so that `import recado` and the command line stay
fast: `recado.Broker` brings asyncio and the server with it, `recado.__version__` nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from recado.actors import Actor as Actor
    from recado.actors import ActorRef as ActorRef
    from recado.actors import ActorSystem as ActorSystem
    from recado.actors import AllForOne as AllForOne
    from recado.actors import Message as Message
    from recado.actors import OneForOne as OneForOne
    from recado.feeds.blocking import BlockingFeedConnection
    from recado.feeds.boundary import FeedOptions
    from recado.feeds.connection import FeedConnection
    from recado.feeds.vector import Vector as Vector
    from recado.node.broker import Broker as Broker
    from recado.node.settings import Settings
    from recado.pipeline.archive_table import table as table

__version__ = "0.1.0"
__all__ = [
    "Actor",
    "ActorRef",
    "ActorSystem",
    "AllForOne",
    "Broker",
    "Message",
    "OneForOne",
    "Vector",
    "__version__",
    "connect",
    "connect_blocking",
    "read_settings",
    "table",
]


def connect(
    url: str,
    *,
    options: FeedOptions | None = None,
    reconnect_timeout: float | None = 300.0,
    wait_for_broker: bool = False,
) -> FeedConnection:
    """Feeds, to be used by `async with`: `amqp://…` for those on a broker, `udp://…` for those without.

    `give_up` is after how many seconds without a broker everything fails; None is never. Without a broker at
    the start it fails at once, unless it is `patient`.
    """
    from recado.feeds.connection import FeedConnection

    return FeedConnection(
        url, options=options, reconnect_timeout=reconnect_timeout, wait_for_broker=wait_for_broker
    )


def connect_blocking(
    url: str,
    *,
    options: FeedOptions | None = None,
    reconnect_timeout: float | None = 300.0,
    wait_for_broker: bool = False,
) -> BlockingFeedConnection:
    """The same for programs without an event loop, to be used by `with`."""
    from recado.feeds.blocking import BlockingFeedConnection

    return BlockingFeedConnection(
        connect(
            url,
            options=options,
            reconnect_timeout=reconnect_timeout,
            wait_for_broker=wait_for_broker,
        )
    )


def read_settings(
    file: Path | str | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read recado.toml and the RECADO_… variables, for programs of any part: `read_settings().actors`.

    `file` is the path of the file; without it, recado.toml of the current folder is read if there is one.
    `environment` is that of the process by default; its variables override the file. Raises
    `recado.node.config.ConfigError`, which names the key and where it is written.
    """
    from recado.node import config

    return config.read_settings(file, environment)


def __getattr__(name: str) -> object:
    if name in ("Actor", "ActorRef", "ActorSystem", "AllForOne", "Message", "OneForOne"):
        import recado.actors

        return getattr(recado.actors, name)
    if name == "Broker":
        from recado.node.broker import Broker

        return Broker
    if name == "Vector":
        from recado.feeds.vector import Vector

        return Vector
    if name == "table":
        from recado.pipeline.archive_table import table

        return table
    raise AttributeError(f"module 'recado' has no attribute {name!r}")
