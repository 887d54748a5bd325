"""Actors: a mailbox and a behaviour each, supervised, addressed alike wherever they live.

    actor   message   ref   future   address   errors      what one writes, sends, has of others, waits for
    system   registry   settings   blocking                a node, and who lives there
    timers   stash   routers   events   occurrences   inspection   testkit

What is here is what programs name. How it works is in rooms, each upon those behind it:

    remote        actors of other nodes
    durable       mailboxes that outlive the process
    serialising   messages as bytes
    failing       starting, stopping, failing, and who answers for it;  running   from a mailbox to its handler
    dispatchers   threads for actors that block

The model is that of Erlang and of Akka, as "Uso do padrão AMQP para transporte de mensagens entre atores
remotos" by Thadeu de Russo e Carmo describes it. The names below are resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .actor import Actor as Actor
    from .address import Address as Address
    from .durable.mailboxes import DurableMailboxes as DurableMailboxes
    from .durable.mailboxes import UnreadableRecord as UnreadableRecord
    from .errors import ActorError as ActorError
    from .errors import ActorStopped as ActorStopped
    from .errors import AlreadyLinked as AlreadyLinked
    from .errors import AnsweredTwice as AnsweredTwice
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
    from .failing.signals import Down as Down
    from .failing.signals import Exhausted as Exhausted
    from .failing.signals import Signal as Signal
    from .failing.supervision import PERMANENT as PERMANENT
    from .failing.supervision import TEMPORARY as TEMPORARY
    from .failing.supervision import AllForOne as AllForOne
    from .failing.supervision import Lifecycle as Lifecycle
    from .failing.supervision import OneForOne as OneForOne
    from .future import Future as Future
    from .future import join as join
    from .message import Message as Message
    from .occurrences import DeadLetter as DeadLetter
    from .occurrences import GivenUp as GivenUp
    from .occurrences import Restarted as Restarted
    from .occurrences import Stopped as Stopped
    from .ref import ActorRef as ActorRef
    from .ref import Reply as Reply
    from .running.mailbox import Mailbox as Mailbox
    from .running.state import State as State
    from .running.turn import Dispatcher as Dispatcher
    from .stash import Stash as Stash
    from .stash import StashFull as StashFull
    from .system import ActorSystem as ActorSystem
    from .timers import Timers as Timers

_ROOMS = {
    "actor": "Actor",
    "address": "Address",
    "durable.mailboxes": "DurableMailboxes UnreadableRecord",
    "errors": "ActorError ActorStopped AlreadyLinked AnsweredTwice AskTimeout Escalated Interrupted NameTaken "
    "NobodyAsked NoSuchActor NotHere SystemClosed Unhandled Unreachable",
    "failing.signals": "Down Exhausted Signal",
    "failing.supervision": "PERMANENT TEMPORARY AllForOne Lifecycle OneForOne",
    "future": "Future join",
    "message": "Message",
    "occurrences": "DeadLetter GivenUp Restarted Stopped",
    "ref": "ActorRef Reply",
    "running.mailbox": "Mailbox",
    "running.state": "State",
    "running.turn": "Dispatcher",
    "stash": "Stash StashFull",
    "system": "ActorSystem",
    "timers": "Timers",
}  # fmt: skip
_WHERE = {name: module for module, names in _ROOMS.items() for name in names.split()}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
