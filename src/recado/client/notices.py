"""What a robust connection tells its program: `connect(url, on_event=…)`."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from .errors import ClientError, GaveUp


class Lost(msgspec.Struct, frozen=True):
    """The connection ended, and is going to be restored."""

    error: Exception


class Retrying(msgspec.Struct, frozen=True):
    """The next attempt is made in `delay` seconds; `error` is why it has to be."""

    attempt: int
    delay: float
    error: Exception


class NotRestored(msgspec.Struct, frozen=True):
    """The broker refused to make this again; all else goes on."""

    what: str
    error: ClientError


class Restored(msgspec.Struct, frozen=True):
    """All is as it was: declared, consumed, and what was not confirmed is sent again."""

    attempts: int
    seconds: float  # since the loss
    renamed: Mapping[str, str]  # queues that the broker had named: the old name and the new one
    repeated: int  # messages


class GivenUp(msgspec.Struct, frozen=True):
    error: GaveUp


class Blocked(msgspec.Struct, frozen=True):
    """The broker takes no messages, as when its disk or memory is full."""

    reason: str


class Unblocked(msgspec.Struct, frozen=True):
    pass


Notice: TypeAlias = Lost | Retrying | NotRestored | Restored | GivenUp | Blocked | Unblocked
