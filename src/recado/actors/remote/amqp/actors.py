"""The actors that own the connections and channels of bridges, under one supervisor per transport.

    ConnectionSupervisor
    └── ConnectionActor            one for each bridge, with one connection or one for each channel
        ├── ReadChannelActor       declares the queue and its bindings, and consumes
        └── WriteChannelActor      started when the ReadChannelActor consumes, so that answers find a queue

An actor whose connection or channel closes fails, and its supervisor restarts it: this is how bridges recover.
After a delay, the new instance opens new connections, channels and channel actors.

BA1  The first attempt is made at once; `BridgeRetries` delays each attempt after a restart. At the reconnect
     timeout of the retry policy (settings.py: `retry_policy`, `search_policy`) the bridge is given up: the
     application is notified, and no further attempt is made.
BA2  A mailbox survives restarts, so a message names the connection or channel that it is about; an instance
     ignores those of earlier instances.
BA3  A queue has one consumer: the broker refuses a second node of the same name.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from contextlib import suppress
from functools import partial
from typing import ClassVar, Final, TypeAlias

from recado.actors.actor import Actor
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.runtime.clock import Timer
from recado.actors.supervision.strategy import OneForOne, SupervisorStrategy
from recado.amqp import methods
from recado.amqp.properties import Properties, encode_properties
from recado.client import (
    Channel,
    ChannelClosedByBrokerError,
    ClientError,
    Connection,
    ConnectionClosedByBrokerError,
    ConnectionClosedError,
    ConnectionLostError,
    ReconnectTimeoutError,
    ReturnedMessage,
)

from .bridge import Bridge
from .consumer import BridgeConsumer
from .frame_batch import MAX_BATCH_FRAMES
from .retry import BridgeRetries
from .settings import ConnectionSharing
from .topology import declare

# BridgeRetries limits the restarts by time, not by their number.
ALWAYS_RESTART: Final = OneForOne(max_restarts=None, within=None)
NOT_FOUND_CODE: Final = 404
CHANNEL_CLOSE_TIMEOUT_S: Final = 2.0
PROBE_PROPERTIES: Final = encode_properties(Properties(expiration="0", delivery_mode=1))


class NodeAbsentError(ClientError):
    """The broker has no queue of the node to which the bridge leads."""


class OpenBridge(Message[None]):
    by_reference: ClassVar[bool] = True
    bridge: Bridge


class CloseBridge(Message[None]):
    by_reference: ClassVar[bool] = True
    bridge: Bridge


class StartAttempt(Message[None]):
    """Open the connections or the channel of the actor."""


class ResourceClosed(Message[None]):
    by_reference: ClassVar[bool] = True
    resource: Connection | Channel
    error: Exception


class ReaderReady(Message[None]):
    """The ReadChannelActor consumes."""


BridgeActorMessage: TypeAlias = StartAttempt | ResourceClosed | ReaderReady


class ConnectionSupervisor(Actor[OpenBridge | CloseBridge]):
    supervisor_strategy: ClassVar[SupervisorStrategy] = ALWAYS_RESTART

    def __init__(self) -> None:
        self._actors: dict[Bridge, ActorRef[BridgeActorMessage]] = {}

    async def receive(self, message: OpenBridge | CloseBridge) -> None:
        match message:
            case OpenBridge(bridge):
                self._actors[bridge] = await self.start_link(partial(ConnectionActor, bridge))
            case CloseBridge(bridge):
                actor = self._actors.pop(bridge, None)
                if actor is not None:
                    actor.stop()


class BridgeActor(Actor[BridgeActorMessage]):
    """Opens its resources, fails when they close, and is restarted (BA1)."""

    supervisor_strategy: ClassVar[SupervisorStrategy] = ALWAYS_RESTART
    expected_errors: ClassVar[tuple[type[BaseException], ...]] = (ClientError, OSError)

    def __init__(self, bridge: Bridge, retries: BridgeRetries) -> None:
        self.bridge = bridge
        self._retries = retries
        self._timer: Timer | None = None
        self._is_attempted = False

    def pre_start(self) -> None:
        if self.bridge.close_reason is not None:
            return
        clock = self.system._clock
        delay = self._retries.next_delay(clock.time(), random.random())
        if delay is not None:
            self._timer = clock.call_later(delay, self.ref.tell, StartAttempt())
            return
        last_error = self.bridge.last_error or ConnectionError("unknown")
        elapsed = self._retries.elapsed(clock.time())
        error = ReconnectTimeoutError(elapsed, self._retries.attempt_count, last_error)
        self.bridge.abandon(error)

    async def receive(self, message: BridgeActorMessage) -> None:
        match message:
            case StartAttempt():
                if not self._is_attempted:
                    self._is_attempted = True
                    await self._attempt()
            case ResourceClosed(resource, error):
                if self.owns(resource):  # BA2
                    raise error
            case ReaderReady():
                await self.reader_ready()

    async def _attempt(self) -> None:
        try:
            await self.open_resources()
        except (ClientError, OSError) as error:
            self.bridge.attempt_failed(error)
            if isinstance(error, NodeAbsentError) or _is_not_found(error):
                self.bridge.node_absent(str(error))
            raise
        self._retries.mark_succeeded(self.system._clock.time())

    @abstractmethod
    async def open_resources(self) -> None:
        """Open the connections or the channel of this actor. Raises ClientError, OSError."""

    @abstractmethod
    def owns(self, resource: Connection | Channel) -> bool:
        """Whether a connection or channel is of this instance."""

    async def reader_ready(self) -> None:
        """The ReadChannelActor consumes."""

    async def post_stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.close_resources()

    @abstractmethod
    async def close_resources(self) -> None:
        """Close everything that this instance has opened."""


def _is_not_found(error: Exception) -> bool:
    return (
        isinstance(error, ChannelClosedByBrokerError | ConnectionClosedByBrokerError)
        and error.reply_code == NOT_FOUND_CODE
    )


class ConnectionActor(BridgeActor):
    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge, bridge.connect_retries)
        self._connections: list[Connection] = []
        self._writer: ActorRef[BridgeActorMessage] | None = None

    async def open_resources(self) -> None:
        await self._open("reads")
        if self.bridge.sharing is ConnectionSharing.PER_CHANNEL:
            await self._open("writes")
        reading_connection = self._connections[0]
        await self.start_link(partial(ReadChannelActor, self.bridge, reading_connection, self.ref))

    async def _open(self, purpose: str) -> None:
        bridge = self.bridge
        is_shared = bridge.sharing is ConnectionSharing.PER_NODE
        name = f"recado actors, {bridge.topology.name}" + ("" if is_shared else f", {purpose}")
        connecting = asyncio.ensure_future(Connection.open(bridge.address, name=name))
        bridge.cancel_connect = connecting.cancel
        try:
            connection = await connecting
        finally:
            bridge.cancel_connect = None
        self._connections.append(connection)
        bridge.connections = self._connections
        connection.on_end = partial(self._connection_closed, connection)
        connection.check_open()

    def _connection_closed(self, connection: Connection, error: Exception) -> None:
        self.ref.tell(ResourceClosed(connection, error))

    async def reader_ready(self) -> None:
        if self._writer is None and self._connections:
            writing_connection = self._connections[-1]
            self._writer = await self.start_link(
                partial(WriteChannelActor, self.bridge, writing_connection)
            )

    def owns(self, resource: Connection | Channel) -> bool:
        return resource in self._connections

    async def pre_restart(self, reason: BaseException, message: object) -> None:
        for connection in self._connections:
            connection.abort(ConnectionLostError("the other connection of this bridge was lost"))
        await self.post_stop()

    async def close_resources(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.on_end = None
        await asyncio.gather(*(connection.close() for connection in connections))


class ReadChannelActor(BridgeActor):
    """Declares the queue of the bridge, and consumes it."""

    def __init__(
        self, bridge: Bridge, connection: Connection, parent: ActorRef[BridgeActorMessage]
    ) -> None:
        super().__init__(bridge, bridge.read_retries)
        self._connection = connection
        self._parent = parent
        self._channel: Channel | None = None
        self._consumer: BridgeConsumer | None = None

    async def open_resources(self) -> None:
        bridge = self.bridge
        channel = self._channel = await self._connection.channel()
        for item in bridge.topology.read_objects:
            await declare(channel, item)
        # Each message may be a full batch of frames.
        prefetch_count = max(1, bridge.settings.prefetch // MAX_BATCH_FRAMES)
        await channel.qos(prefetch_count)
        consumer = self._consumer = BridgeConsumer(
            bridge, channel, prefetch_count, self._channel_closed
        )
        # Flags: no-local, no-ack, exclusive (BA3).
        method = methods.BasicConsume(consumer.queue, consumer.tag, False, False, True)
        await channel.start_consumer(consumer, method)
        bridge.reading_started()
        self._parent.tell(ReaderReady())

    def _channel_closed(self, channel: Channel, error: Exception) -> None:
        self.bridge.reading_stopped(error)
        if not isinstance(error, ConnectionClosedError):  # otherwise the ConnectionActor restarts
            self.ref.tell(ResourceClosed(channel, error))

    def owns(self, resource: Connection | Channel) -> bool:
        return resource is self._channel

    async def close_resources(self) -> None:
        if self._consumer is not None:
            self._consumer.stop_acking()
        channel, self._channel = self._channel, None
        await _close_channel(channel)


class WriteChannelActor(BridgeActor):
    """Opens the channel on which the bridge publishes.

    A client bridge first probes whether the queue of its node is bound: it publishes an empty mandatory message
    with expiration 0, which the broker returns if there is no queue. Until the queue is bound no frame is
    published, so the waiting frames keep their order.
    """

    def __init__(self, bridge: Bridge, connection: Connection) -> None:
        super().__init__(bridge, bridge.write_retries)
        self._connection = connection
        self._channel: Channel | None = None
        self._probe_returned = False

    async def open_resources(self) -> None:
        bridge = self.bridge
        topology = bridge.topology
        channel = self._channel = await self._connection.channel(confirms=bridge.is_durable)
        for item in topology.write_objects:
            await declare(channel, item)
        if topology.probe_key is not None:
            await self._probe(channel, topology.exchange, topology.probe_key)
        channel.on_end = self._channel_closed
        channel.check_open()
        bridge.writing_started(channel)

    async def _probe(self, channel: Channel, exchange: str, key: str) -> None:
        channel.on_return = self._handle_return
        channel.publish(exchange, key, b"", PROBE_PROPERTIES, mandatory=True)
        await channel.qos(0)  # answered after the broker has processed the probe
        if self._probe_returned:
            raise NodeAbsentError(f"no queue is bound on this broker for '{key}'")

    def _handle_return(self, message: ReturnedMessage) -> None:
        self._probe_returned = True

    def _channel_closed(self, error: Exception) -> None:
        self.bridge.writing_stopped(error)
        if self._channel is not None and not isinstance(error, ConnectionClosedError):
            self.ref.tell(ResourceClosed(self._channel, error))

    def owns(self, resource: Connection | Channel) -> bool:
        return resource is self._channel

    async def close_resources(self) -> None:
        channel, self._channel = self._channel, None
        await _close_channel(channel)


async def _close_channel(channel: Channel | None) -> None:
    if channel is not None:
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(CHANNEL_CLOSE_TIMEOUT_S):
                await channel.close()
