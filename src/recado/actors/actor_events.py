"""What happened to actors, as values, for whoever wants to know: logs, tests, `recado actors`."""

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
    """A message that nobody will handle."""

    message: Any
    sender: Ref | None
    recipient: Ref
    reason: str = ""
    """Why, where it is not simply that the recipient is gone."""


class Restarted(ActorEvent):
    ref: Ref
    reason: BaseException


class Stopped(ActorEvent):
    ref: Ref
    reason: Reason


class GivenUp(ActorEvent):
    """The system itself supervised an actor and has stopped it: it failed too often, or in an untrapped way."""

    ref: Ref
    reason: BaseException
