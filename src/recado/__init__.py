"""recado: a message broker that every AMQP 0-9-1 client uses unchanged.

The public names are resolved when first used, so that `import recado` and the command line stay
fast: `recado.Broker` brings asyncio and the server with it, `recado.__version__` nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recado.node.broker import Broker as Broker

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from recado.node.broker import Broker

        return Broker
    raise AttributeError(f"module 'recado' has no attribute {name!r}")
