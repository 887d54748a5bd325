"""What can go wrong with actors, one class per thing that a program may want to do about it.

    ActorError
    ├── AskTimeout        nobody answered in time; a late answer is dropped
    ├── ActorStopped      the actor is gone, and with it what was asked of it
    ├── NoSuchActor       nobody has, or had, that address
    ├── NameTaken         a living actor has that name already
    ├── AlreadyLinked     it has a supervisor already, or is that of the other
    ├── Unhandled         an actor was sent what its behaviour does not know: its failure
    ├── NobodyAsked       a reply, and nobody to give it to: a failure of who replies
    ├── AnsweredTwice     a handler replied and also returned a value: its failure
    ├── NotHere           called in the wrong place: the wrong thread, outside of a handler or of a system
    ├── Interrupted       a handler or hook was cancelled, or raised what is no Exception
    ├── Unreachable       the node of an actor is silent; whether the actor lives is not known
    ├── Escalated         an actor gave up one that it supervised, and fails for it
    └── SystemClosed      the system is closed, or not open yet

An error says what happened, and where something can be done about it, what.
"""

from __future__ import annotations


class ActorError(Exception):
    """Anything of the above."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}. {hint}" if hint else what)
        self.what = what
        self.hint = hint


class AskTimeoutError(ActorError, TimeoutError):
    pass


class ActorStoppedError(ActorError):
    pass


class NoSuchActorError(ActorError):
    pass


class NameTakenError(ActorError):
    pass


class AlreadyLinkedError(ActorError):
    pass


class UnhandledMessageError(ActorError):
    pass


class NoSenderError(ActorError):
    pass


class DuplicateReplyError(ActorError):
    pass


class WrongContextError(ActorError):
    pass


class ActorInterruptedError(ActorError):
    pass


class NodeUnreachableError(ActorError):
    pass


class EscalatedError(ActorError):
    pass


class SystemClosedError(ActorError):
    pass


def actor_stopped_error(recipient: object) -> ActorStoppedError:
    """The error of a message for an actor that does not exist, or not any more."""
    return ActorStoppedError(f"{recipient} is not there, or not any more")
