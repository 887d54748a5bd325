"""Errors of remote messaging, as the senders of messages see them."""

from __future__ import annotations

from enum import IntEnum

from recado.actors.errors import ActorError
from recado.actors.serialization.errors import InvalidEnvelopeError as InvalidEnvelopeError
from recado.actors.serialization.errors import RemoteError as RemoteError
from recado.actors.serialization.errors import SerializationError as SerializationError
from recado.actors.serialization.errors import UnacceptableMessageError as UnacceptableMessageError


class NoRouteError(RemoteError):
    """No link leads to the node: its address is not known."""


class NotDeliveredError(RemoteError):
    """The message certainly did not arrive: the node is absent, or the link was lost before it was sent."""


class LinkLostError(RemoteError):
    """The link was lost after the message was sent: whether it was handled is not known."""


class LinkClosedError(RemoteError):
    """The link was closed, or its transport has stopped reconnecting."""


class LimitExceededError(RemoteError):
    """A limit is reached: the send buffer of a link whose peer is slow or away, or a limit of this node."""


class InvalidFrameError(RemoteError):
    """The bytes are not a frame, or not an authentic one. Nothing in them was decoded."""


class RefusalReason(IntEnum):
    """Why a node did not process a frame; one byte on the wire."""

    COOKIE = 1  # not authenticated with the required cookie
    REPLAY = 2  # a duplicate of a settled frame
    ENVELOPE = 3  # invalid content
    SERIALIZATION = 4  # a serialization format that is not accepted, or an unknown class
    UNTRUSTED = 5  # the node lets no other node create, move or supervise its actors
    BUSY = 6  # a limit is reached
    # Another node of the same name has connected since, or is at its configured address.
    REPLACED = 7


class MessageRefusedError(RemoteError):
    """The other node did not process the message.

    `reason` is its reason code, `detail` its explanation.
    """

    def __init__(self, reason: RefusalReason, detail: str = "") -> None:
        explanation = f": {detail}" if detail else ""
        super().__init__(f"the node refused the message: {reason.name.lower()}{explanation}")
        self.reason = reason
        self.detail = detail


class NodeReplacedError(RemoteError):
    """The frame is from a node whose name another node has taken over."""


class ClassNotOfferedError(RemoteError):
    """The other node does not offer the class, or the class does not support the request."""


class RemoteActorError(ActorError):
    """An exception of another node whose class is not registered here.

    `kind` is the name of the class, `text` the text of the exception.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind = kind
        self.text = text
