"""What can go wrong between nodes, as those see it who send messages there."""

from __future__ import annotations

from enum import IntEnum

from recado.actors.serialization.errors import InvalidEnvelopeError as InvalidEnvelopeError
from recado.actors.serialization.errors import RemoteError as RemoteError
from recado.actors.serialization.errors import SerializationError as SerializationError
from recado.actors.serialization.errors import UnacceptableMessageError as UnacceptableMessageError


class NoRouteError(RemoteError):
    """No link leads to this node: its address is not known."""


class NotDeliveredError(RemoteError):
    """The message certainly did not arrive: nobody is there, or the way was lost before."""


class LinkLostError(RemoteError):
    """The link was lost after the message had gone out: nobody knows whether it was handled."""


class LinkClosedError(RemoteError):
    """The link was closed, or its transport has given up."""


class LimitExceededError(RemoteError):
    """As much waits already as may: on a link, because its peer is slow or away, or here, for others."""


class InvalidFrameError(RemoteError):
    """Bytes that are no frame, or one that is not what it seems. Nothing in it was decoded."""


class RefusalReason(IntEnum):
    """Why a node did not process a frame, as one byte."""

    COOKIE = 1  # not sealed with the cookie that it demands
    REPLAY = 2  # it was settled before
    ENVELOPE = 3  # what was in it broke the rules
    SERIALIZATION = 4  # a serialisation that it does not accept, or a class that it does not know
    UNTRUSTED = 5  # it creates, moves and supervises nothing for others
    BUSY = 6  # too much of this is going on
    REPLACED = 7  # another node of the same name has connected since, or is at its known address


class MessageRefusedError(RemoteError):
    """The other node did not process the message, and told us why."""

    def __init__(self, reason: RefusalReason, detail: str = "") -> None:
        """`why` is the other node's own account of it."""
        said = f": {detail}" if detail else ""
        super().__init__(f"the node refused the message: {reason.name.lower()}{said}")
        self.reason = reason
        self.detail = detail


class NodeReplacedError(RemoteError):
    """A frame of a node whose name another one has now."""


class ClassNotOfferedError(RemoteError):
    """A class that the other node does not offer to others, or one that cannot do what it is to do."""


class RemoteActorError(Exception):
    """An exception of another node whose class is not registered here."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind = kind
        self.text = text
