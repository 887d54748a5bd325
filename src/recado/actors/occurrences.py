"""What happened to actors, as values, for whoever wants to know: logs, tests, `recado actors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .failing.signals import Reason
from .message import Message

if TYPE_CHECKING:
    from .ref import ActorRef

Ref: TypeAlias = "ActorRef[Any]"


class Occurrence(Message[None]):
    by_reference: ClassVar[bool] = True


class DeadLetter(Occurrence):
    """A message that nobody will handle."""

    message: Any
    sender: Ref | None
    recipient: Ref
    reason: str = ""
    """Why, where it is not simply that the recipient is gone."""


class Restarted(Occurrence):
    ref: Ref
    reason: BaseException


class Stopped(Occurrence):
    ref: Ref
    reason: Reason


class GivenUp(Occurrence):
    """The system itself supervised an actor and has stopped it: it failed too often, or in an untrapped way."""

    ref: Ref
    reason: BaseException
