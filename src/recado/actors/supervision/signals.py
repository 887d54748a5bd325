"""Signals: what actors hear beside their messages, before them, about the life of other actors.

They are values and travel like messages. An actor's `on_signal` gets those of `Signal`; the others are
between cells.

    who supervises ── Link, Unlink, Restart, Stop ──►  who is supervised
                   ◄── Failed, Ended ───────────────
    who monitors   ── Watch, Unwatch ──►  who is watched       and Down back, once
    two that are tied ── Tie, Untie, Exit ──►  each other

A `reason` is the exception that ended an actor, None if it was stopped as anybody would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from recado.actors.message import Message

if TYPE_CHECKING:
    from recado.actors.ref import ActorRef

Ref: TypeAlias = "ActorRef[Any]"
Reason: TypeAlias = BaseException | None


class _SignalMessage(Message[None]):
    # Exceptions are not copied: they hold frames, and who gets one only looks at it.
    by_reference: ClassVar[bool] = True


# --- to `on_signal` of an actor -------------------------------------------------------------------


class Down(_SignalMessage):
    """A monitored actor has stopped, or its node is out of reach (`reason` is an Unreachable)."""

    ref: Ref
    reason: Reason


class ChildFailed(_SignalMessage):
    """A supervised actor failed too often for its strategy, or by what that does not trap, and was stopped."""

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
    """It waits, with what it failed on, for a Restart or a Stop."""

    ref: Ref
    reason: BaseException


class Ended(_SignalMessage):
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
    """Somebody that this actor is tied to has failed: they die together."""

    ref: Ref
    reason: BaseException


CellSignal: TypeAlias = (
    Signal | Link | Unlink | Restart | Stop | Failed | Ended | Watch | Unwatch | Tie | Untie | Exit
)
