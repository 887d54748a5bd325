"""What a robust connection tells its program: `connect(url, on_event=…)`."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from .errors import ClientError, ReconnectTimeoutError


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection ended, and is going to be restored."""

    error: Exception


class ReconnectScheduled(msgspec.Struct, frozen=True):
    """The next attempt is made in `delay` seconds; `error` is why it has to be."""

    attempt: int
    delay: float
    error: Exception


class RecoverySkipped(msgspec.Struct, frozen=True):
    """The broker refused to make this again; all else goes on."""

    entity: str
    error: ClientError


class ConnectionRecovered(msgspec.Struct, frozen=True):
    """All is as it was: declared, consumed, and what was not confirmed is sent again."""

    attempt_count: int
    elapsed: float  # since the loss
    renamed_queues: Mapping[
        str, str
    ]  # queues that the broker had named: the old name and the new one
    republished_count: int  # messages


class ReconnectAbandoned(msgspec.Struct, frozen=True):
    error: ReconnectTimeoutError


class PublishingBlocked(msgspec.Struct, frozen=True):
    """The broker takes no messages, as when its disk or memory is full."""

    reason: str


class PublishingUnblocked(msgspec.Struct, frozen=True):
    pass


ConnectionEvent: TypeAlias = (
    ConnectionLost
    | ReconnectScheduled
    | RecoverySkipped
    | ConnectionRecovered
    | ReconnectAbandoned
    | PublishingBlocked
    | PublishingUnblocked
)
