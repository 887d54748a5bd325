"""The exceptions of actors: one class for each case that a program may handle differently.

    ActorError
    ├── AskTimeoutError         no reply in time; a late reply is dropped
    ├── ActorStoppedError       a message was sent to an actor that has stopped, or does not exist
    ├── NoSuchActorError        a lookup, link or monitor found no actor of this address, name or class
    ├── NameTakenError          a living actor has this name
    ├── AlreadyLinkedError      the actor has another supervisor, or the link would be a cycle
    ├── UnhandledMessageError   the behaviour of the actor does not accept the message
    ├── NoSenderError           a reply to a message that has no sender
    ├── DuplicateReplyError     a handler replied and also returned a value
    ├── WrongContextError       called in the wrong thread, outside of a handler, or outside of a system
    ├── ActorInterruptedError   a handler or hook was cancelled, or raised a BaseException
    ├── NodeUnreachableError    the node of an actor is silent; whether the actor lives is unknown
    ├── EscalatedError          a child is not restarted any more, so its supervisor fails, too
    ├── SystemClosedError       the system is closed, or not open yet
    ├── StashFullError          a stash is full (stash.py)
    └── RemoteError             messages that cannot be sent, read or delivered (serialization, remote)

Each error says what happened, and in its `hint` what to do about it, if anything.
"""

from __future__ import annotations


class ActorError(Exception):
    """The base class of all exceptions of actors."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}. {hint}" if hint else what)
        self.what = what
        self.hint = hint


class AskTimeoutError(ActorError, TimeoutError):
    """No reply arrived in time. A late reply is dropped."""


class ActorStoppedError(ActorError):
    """The actor has stopped, or does not exist."""


class NoSuchActorError(ActorError):
    """No actor has this address, name or class. Raised by lookups; also the reason of a Down in that case."""


class NameTakenError(ActorError):
    """A living actor has this name."""


class AlreadyLinkedError(ActorError):
    """The actor has another supervisor, or supervises the actor that should become its supervisor."""


class UnhandledMessageError(ActorError):
    """The behaviour of the actor does not accept the message."""


class NoSenderError(ActorError):
    """A handler replied to a message that has no sender."""


class DuplicateReplyError(ActorError):
    """A handler replied to a message, and also returned a value."""


class WrongContextError(ActorError):
    """A call in the wrong thread, outside of a handler, or outside of a system."""


class ActorInterruptedError(ActorError):
    """A handler or hook was cancelled, or raised a BaseException that is not an Exception (its `__cause__`)."""


class NodeUnreachableError(ActorError):
    """The node of an actor is silent. Whether the actor lives is unknown."""


class EscalatedError(ActorError):
    """A child is not restarted any more. Its supervisor does not handle that in `on_signal`, and fails, too."""


class SystemClosedError(ActorError):
    """The system is closed, or not open yet."""


def actor_stopped_error(recipient: object) -> ActorStoppedError:
    """Return the error of a message for an actor that does not exist, or not any more."""
    return ActorStoppedError(f"{recipient} has stopped, or does not exist")
