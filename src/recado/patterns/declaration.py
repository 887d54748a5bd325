"""Declare destinations on the broker, each once per connection.

An existing queue or exchange is used as it is, whatever its arguments: it is declared only if a passive
declaration does not find it. So programs that declare the same destination with other settings do not fail.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from recado.amqp.values import FieldTable
from recado.client import ChannelClosedByBrokerError, RobustChannel, RobustConnection

from .destination import (
    Destination,
    DestinationLike,
    LogStream,
    PointToPoint,
    PublishSubscribe,
    to_destination,
)

NOT_FOUND_CODE = 404

RECADO_INFORMATION = "recado "
"""How recado's server property `information` begins. Its `product` is RabbitMQ, for clients that test for that."""

DELETION_NOTICE_S = 0.5  # in which RabbitMQ cancels the consumers of a deleted queue

UNROUTED_SUFFIX = ".unrouted"

# Quorum queues of RabbitMQ return a requeued message to their head only if they have a limit of deliveries. The
# broker drops a message beyond the limit, so the limit is a number that no message reaches.
DELIVERY_LIMIT_COUNT = 1_000_000_000
_QUORUM_ARGUMENTS: FieldTable = {
    "x-queue-type": "quorum",
    "x-delivery-limit": DELIVERY_LIMIT_COUNT,
}


class Declarer:
    """Declares destinations and remembers which exist."""

    def __init__(self, connection: RobustConnection) -> None:
        self._connection = connection
        self._declared: set[tuple[str, str]] = set()
        self._deleted_at: dict[tuple[str, str], float] = {}
        self._lock = asyncio.Lock()
        self.is_recado = False

    def detect_broker(self, server_properties: Mapping[str, object]) -> None:
        """Record whether the broker is recado, whose extensions are used then."""
        information = server_properties.get("information")
        self.is_recado = isinstance(information, str) and information.startswith(RECADO_INFORMATION)

    def forget_all(self) -> None:
        """Declare everything again when it is next used: the broker may have been replaced."""
        self._declared.clear()

    def forget(self, destination: Destination) -> None:
        """Declare this destination again when it is next used: it was deleted."""
        key = _key(destination)
        self._declared.discard(key)
        self._deleted_at[key] = asyncio.get_running_loop().time()

    def is_declared(self, destination: Destination) -> bool:
        """Whether a destination exists, as far as is known; the default exchange, whose name is empty, does."""
        return not destination.name or _key(destination) in self._declared

    async def declare(self, destination: DestinationLike) -> Destination:
        """Declare a destination unless it exists; return it."""
        target = to_destination(destination)
        if self.is_declared(target):
            return target
        async with self._lock:
            if not self.is_declared(target):
                await self._wait_after_deletion(target)
                await self._declare(target)
                self._declared.add(_key(target))
        return target

    async def _wait_after_deletion(self, destination: Destination) -> None:
        """Give RabbitMQ time to cancel the consumers of a deleted queue.

        It does not if a quorum queue of the same name exists again before that. Then the consumers stay without a
        notice, and messages of the new queue do not reach them.
        """
        deleted_at = self._deleted_at.pop(_key(destination), None)
        if deleted_at is not None and not self.is_recado:
            elapsed = asyncio.get_running_loop().time() - deleted_at
            await asyncio.sleep(max(DELETION_NOTICE_S - elapsed, 0))

    async def _declare(self, destination: Destination) -> None:
        match destination:
            case PointToPoint(name, queue_type, arguments):
                defaults = _QUORUM_ARGUMENTS if queue_type == "quorum" else {}
                await self.declare_queue(name, {**defaults, **arguments})
            case LogStream(name, arguments):
                await self.declare_queue(name, {"x-queue-type": "stream", **arguments})
            case PublishSubscribe(name, exchange_type, arguments):
                await self.declare_exchange(name, exchange_type, arguments)

    async def declare_queue(self, name: str, arguments: FieldTable) -> None:
        """Declare a durable queue unless it exists."""
        if not await self._exists_queue(name):
            async with await self._connection.channel(confirms=False) as channel:
                await channel.declare_queue(name, durable=True, arguments=arguments)

    async def declare_exchange(
        self, name: str, exchange_type: str, arguments: Mapping[str, Any]
    ) -> None:
        """Declare a durable exchange unless it exists.

        On RabbitMQ, which has no dead-letter bindings, it gets an alternate exchange for them.
        """
        if not name or name.startswith("amq.") or await self._exists_exchange(name):
            return
        async with await self._connection.channel(confirms=False) as channel:
            if not self.is_recado and "alternate-exchange" not in arguments:
                unrouted = name + UNROUTED_SUFFIX
                await channel.declare_exchange(unrouted, exchange_type, durable=True)
                arguments = {**arguments, "alternate-exchange": unrouted}
            await channel.declare_exchange(
                name, exchange_type, durable=True, arguments=dict(arguments)
            )

    async def _exists_queue(self, name: str) -> bool:
        try:
            async with await self.open_channel() as channel:
                await channel.declare_queue(name, passive=True)
        except ChannelClosedByBrokerError as error:
            return _exists(error)
        return True

    async def _exists_exchange(self, name: str) -> bool:
        try:
            async with await self.open_channel() as channel:
                await channel.declare_exchange(name, passive=True)
        except ChannelClosedByBrokerError as error:
            return _exists(error)
        return True

    async def open_channel(self) -> RobustChannel:
        """Open a channel for one operation; the caller closes it."""
        return await self._connection.channel(confirms=False)


def _key(destination: Destination) -> tuple[str, str]:
    return type(destination).__name__, destination.name


def _exists(error: ChannelClosedByBrokerError) -> bool:
    """Whether the reply to a passive declaration means that the object exists; raises other errors."""
    if error.reply_code == NOT_FOUND_CODE:
        return False
    raise error
