"""What can be wrong with a message that leaves this process, or comes from without."""

from __future__ import annotations

from recado.actors.errors import ActorError


class RemoteError(ActorError):
    """Something between this process and another, or its own next life; not a failure of an actor."""


class SerializationError(RemoteError):
    """A message whose class has no serialiser, or whose content it does not take."""


class InvalidEnvelopeError(RemoteError):
    """Content that breaks the rules: of an authentic frame, or of what was written down."""


class UnacceptableMessageError(InvalidEnvelopeError):
    """A serialisation that is not accepted here, or a class that is not registered."""
