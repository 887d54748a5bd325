"""Signals: notifications about the life of actors.

They are values, and are sent to other nodes like messages. `on_signal` of an actor gets those of the union
`Signal`: they are queued, and processed before the next message. The other signals of `CellSignal`, such as
`Failed`, are handled by the cell itself: at once on the loop, also while a handler of the actor runs
(signal_handler.py).

    supervisor  ── Link, Unlink, Restart, Stop ──►  child
                ◄── Failed, Ended ────────────────
    watcher     ── Watch, Unwatch ──►  watched actor      and Down back, once
    actor       ── Tie, Untie, Exit ──►  the actor that it is tied to

A `reason` is the exception that ended an actor; None if it was stopped normally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from recado.actors.message import Message

if TYPE_CHECKING:
    from recado.actors.ref import ActorRef

Ref: TypeAlias = "ActorRef[Any]"
Reason: TypeAlias = BaseException | None


class _SignalMessage(Message[None]):
    # Exceptions are not copied: they reference frames, and the recipient only reads them.
    by_reference: ClassVar[bool] = True


# --- to `on_signal` of an actor -------------------------------------------------------------------


class Down(_SignalMessage):
    """A monitored actor has stopped, does not exist (`reason` is a NoSuchActorError), or its node is unreachable
    (NodeUnreachableError)."""

    ref: Ref
    reason: Reason


class ChildFailed(_SignalMessage):
    """A child was stopped because it failed too often, or with an exception that its strategy does not trap."""

    ref: Ref
    reason: BaseException


Signal: TypeAlias = Down | ChildFailed


# --- between cells --------------------------------------------------------------------------------


class Link(_SignalMessage):
    supervisor: Ref


class Unlink(_SignalMessage):
    supervisor: Ref


class Restart(_SignalMessage):
    reason: BaseException


class Stop(_SignalMessage):
    reason: Reason


class Failed(_SignalMessage):
    """A child has failed, and is suspended until it gets a Restart or a Stop."""

    ref: Ref
    reason: BaseException


class Ended(_SignalMessage):
    """A child has stopped, or could not be linked (`reason` is an AlreadyLinkedError or a NoSuchActorError)."""

    ref: Ref
    reason: Reason


class Watch(_SignalMessage):
    watcher: Ref


class Unwatch(_SignalMessage):
    watcher: Ref


class Tie(_SignalMessage):
    peer: Ref


class Untie(_SignalMessage):
    peer: Ref


class Exit(_SignalMessage):
    """An actor that this one is tied to has failed for good, or does not exist: this one stops, too."""

    ref: Ref
    reason: BaseException


CellSignal: TypeAlias = (
    Signal | Link | Unlink | Restart | Stop | Failed | Ended | Watch | Unwatch | Tie | Untie | Exit
)
