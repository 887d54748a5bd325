"""The events of a robust connection, passed to the program by `connect(url, on_event=…)`."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from .errors import ClientError, ReconnectTimeoutError


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection was lost; reconnecting begins."""

    error: Exception


class ReconnectScheduled(msgspec.Struct, frozen=True):
    """The next attempt starts in `delay` seconds; `error` is why the last connection or attempt failed."""

    attempt: int
    delay: float
    error: Exception


class RecoverySkipped(msgspec.Struct, frozen=True):
    """The broker refused to recreate a queue, binding, consumer, …; recovery continues without it."""

    entity: str
    error: ClientError


class ConnectionRecovered(msgspec.Struct, frozen=True):
    """Topology and consumers are restored, and unconfirmed messages were published again."""

    attempt_count: int
    elapsed: float  # seconds since the loss
    renamed_queues: Mapping[str, str]  # queues named by the broker: old name → new name
    republished_count: int


class ReconnectAbandoned(msgspec.Struct, frozen=True):
    """`reconnect_timeout` has passed, or an internal error occurred; the connection has failed for good."""

    error: ReconnectTimeoutError


class PublishingBlocked(msgspec.Struct, frozen=True):
    """The broker accepts no messages (connection.blocked), for example because its disk or memory is full."""

    reason: str


class PublishingUnblocked(msgspec.Struct, frozen=True):
    """The broker accepts messages again (connection.unblocked)."""


ConnectionEvent: TypeAlias = (
    ConnectionLost
    | ReconnectScheduled
    | RecoverySkipped
    | ConnectionRecovered
    | ReconnectAbandoned
    | PublishingBlocked
    | PublishingUnblocked
)
