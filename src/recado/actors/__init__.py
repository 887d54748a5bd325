"""Actors: a mailbox and a behaviour each, supervised, addressed alike wherever they live.

    ref      what everybody has of an actor  ──►  cell      mailbox, behaviour, one message at a time
    actor    what one writes                      turn      the loop runs the cells that have work
    message  values that are sent                 pressure  what becomes of those who send to full mailboxes
    future   answers and time-outs
    system   a node, and who lives there

    lifecycle, restart, hearing      what seldom happens to a cell: it starts, stops, fails, hears a signal
    supervision, family, bonds       who answers for whom, and how

The model is that of Erlang and of Akka, as "Uso do padrão AMQP para transporte de mensagens entre atores
remotos" by Thadeu de Russo e Carmo describes it. The names below are resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .actor import Actor as Actor
    from .address import Address as Address
    from .durable import DurableMailboxes as DurableMailboxes
    from .errors import ActorError as ActorError
    from .errors import ActorStopped as ActorStopped
    from .errors import AlreadyLinked as AlreadyLinked
    from .errors import AskTimeout as AskTimeout
    from .errors import Escalated as Escalated
    from .errors import Interrupted as Interrupted
    from .errors import NameTaken as NameTaken
    from .errors import NobodyAsked as NobodyAsked
    from .errors import NoSuchActor as NoSuchActor
    from .errors import NotHere as NotHere
    from .errors import SystemClosed as SystemClosed
    from .errors import Unhandled as Unhandled
    from .errors import Unreachable as Unreachable
    from .future import Future as Future
    from .future import join as join
    from .mailbox import Mailbox as Mailbox
    from .message import Message as Message
    from .occurrences import DeadLetter as DeadLetter
    from .occurrences import GivenUp as GivenUp
    from .occurrences import Restarted as Restarted
    from .occurrences import Stopped as Stopped
    from .ref import ActorRef as ActorRef
    from .ref import Reply as Reply
    from .signals import Down as Down
    from .signals import Exhausted as Exhausted
    from .signals import Signal as Signal
    from .stash import Stash as Stash
    from .stash import StashFull as StashFull
    from .state import State as State
    from .supervision import PERMANENT as PERMANENT
    from .supervision import TEMPORARY as TEMPORARY
    from .supervision import AllForOne as AllForOne
    from .supervision import Lifecycle as Lifecycle
    from .supervision import OneForOne as OneForOne
    from .system import ActorSystem as ActorSystem
    from .timers import Timers as Timers
    from .turn import Dispatcher as Dispatcher

_ROOMS = {
    "actor": "Actor",
    "address": "Address",
    "durable": "DurableMailboxes",
    "errors": "ActorError ActorStopped AlreadyLinked AskTimeout Escalated Interrupted NameTaken NobodyAsked "
    "NoSuchActor NotHere SystemClosed Unhandled Unreachable",
    "future": "Future join",
    "mailbox": "Mailbox",
    "message": "Message",
    "occurrences": "DeadLetter GivenUp Restarted Stopped",
    "ref": "ActorRef Reply",
    "signals": "Down Exhausted Signal",
    "stash": "Stash StashFull",
    "state": "State",
    "supervision": "PERMANENT TEMPORARY AllForOne Lifecycle OneForOne",
    "system": "ActorSystem",
    "timers": "Timers",
    "turn": "Dispatcher",
}  # fmt: skip
_WHERE = {name: module for module, names in _ROOMS.items() for name in names.split()}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
