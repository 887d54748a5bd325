"""The exceptions of messages that cannot be sent, stored or read."""

from __future__ import annotations

from recado.actors.errors import ActorError


class RemoteError(ActorError):
    """A message could not be sent to another node, stored, or read. Not a failure of an actor."""


class SerializationError(RemoteError):
    """A message cannot be serialized: its class is not registered, or a part of it does not match its declared
    type."""


class InvalidEnvelopeError(RemoteError):
    """A frame or a stored record has invalid content."""


class UnacceptableMessageError(InvalidEnvelopeError):
    """A message in a format that is not accepted here, or of a class that is not registered."""
