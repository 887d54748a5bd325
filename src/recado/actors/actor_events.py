"""Events about actors. A system publishes them on its event stream, for logs and monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .message import Message
from .supervision.signals import Reason

if TYPE_CHECKING:
    from .ref import ActorRef

Ref: TypeAlias = "ActorRef[Any]"


class ActorEvent(Message[None]):
    by_reference: ClassVar[bool] = True


class DeadLetter(ActorEvent):
    """A message could not be delivered, or its actor stopped before it was handled."""

    message: Any
    sender: Ref | None
    recipient: Ref
    reason: str = ""
    """Empty if the recipient has simply stopped."""


class Restarted(ActorEvent):
    """An actor was restarted."""

    ref: Ref
    reason: BaseException


class Stopped(ActorEvent):
    """An actor has stopped. `reason` is None if it was stopped normally."""

    ref: Ref
    reason: Reason


class GivenUp(ActorEvent):
    """The guardian has stopped an actor that failed too often, or with an exception that its strategy does not
    trap."""

    ref: Ref
    reason: BaseException
