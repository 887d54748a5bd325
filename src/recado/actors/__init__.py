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
    from .actor_events import DeadLetter as DeadLetter
    from .actor_events import GivenUp as GivenUp
    from .actor_events import Restarted as Restarted
    from .actor_events import Stopped as Stopped
    from .address import Address as Address
    from .durable_mailbox.mailboxes import DurableMailboxes as DurableMailboxes
    from .durable_mailbox.mailboxes import UnreadableRecord as UnreadableRecord
    from .errors import ActorError as ActorError
    from .errors import ActorInterruptedError as ActorInterruptedError
    from .errors import ActorStoppedError as ActorStoppedError
    from .errors import AlreadyLinkedError as AlreadyLinkedError
    from .errors import AskTimeoutError as AskTimeoutError
    from .errors import DuplicateReplyError as DuplicateReplyError
    from .errors import EscalatedError as EscalatedError
    from .errors import NameTakenError as NameTakenError
    from .errors import NodeUnreachableError as NodeUnreachableError
    from .errors import NoSenderError as NoSenderError
    from .errors import NoSuchActorError as NoSuchActorError
    from .errors import SystemClosedError as SystemClosedError
    from .errors import UnhandledMessageError as UnhandledMessageError
    from .errors import WrongContextError as WrongContextError
    from .future import Future as Future
    from .future import join as join
    from .message import Message as Message
    from .ref import ActorRef as ActorRef
    from .ref import Reply as Reply
    from .runtime.loop_dispatcher import Dispatcher as Dispatcher
    from .runtime.mailbox import Mailbox as Mailbox
    from .runtime.state import CellState as CellState
    from .stash import Stash as Stash
    from .stash import StashFullError as StashFullError
    from .supervision.signals import ChildFailed as ChildFailed
    from .supervision.signals import Down as Down
    from .supervision.signals import Signal as Signal
    from .supervision.strategy import PERMANENT as PERMANENT
    from .supervision.strategy import TEMPORARY as TEMPORARY
    from .supervision.strategy import AllForOne as AllForOne
    from .supervision.strategy import OneForOne as OneForOne
    from .supervision.strategy import RestartType as RestartType
    from .system import ActorSystem as ActorSystem
    from .timers import Timers as Timers

_EXPORTS = {
    "actor": "Actor",
    "actor_events": "DeadLetter GivenUp Restarted Stopped",
    "address": "Address",
    "durable_mailbox.mailboxes": "DurableMailboxes UnreadableRecord",
    "errors": "ActorError ActorInterruptedError ActorStoppedError AlreadyLinkedError AskTimeoutError "
    "DuplicateReplyError EscalatedError NameTakenError NoSenderError NoSuchActorError "
    "NodeUnreachableError SystemClosedError UnhandledMessageError WrongContextError",
    "future": "Future join",
    "message": "Message",
    "ref": "ActorRef Reply",
    "runtime.loop_dispatcher": "Dispatcher",
    "runtime.mailbox": "Mailbox",
    "runtime.state": "CellState",
    "stash": "Stash StashFullError",
    "supervision.signals": "ChildFailed Down Signal",
    "supervision.strategy": "AllForOne OneForOne PERMANENT RestartType TEMPORARY",
    "system": "ActorSystem",
    "timers": "Timers",
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
