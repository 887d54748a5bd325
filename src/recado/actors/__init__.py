"""Actors: objects with a mailbox that handle one message at a time, supervised and addressed alike on every
node.

    async with ActorSystem("exchange") as system:
        book = await system.spawn(Book, name="book.A1")
        ack = await book.ask(Place(order), timeout=2)

This package exports everything that a program needs; actors of other nodes are in `recado.actors.remote`, test
helpers in `recado.actors.testkit`, messages of the inspector in `recado.actors.inspection`. Names are imported
on first use.

The modules directly in this package define the public classes. The subpackages implement them. Each uses only
those listed below it; supervision and runtime, the kernel, use each other:

    remote            actors on other nodes
    durable_mailbox   mailboxes in a journal on disk
    serialization     messages as bytes
    dispatchers       thread pools for actors that block
    supervision       starting, stopping, failures, restarts, links
    runtime           cells: from a mailbox to its handler

The model follows Erlang and Akka, as described in "Uso do padrão AMQP para transporte de mensagens entre atores
remotos" by Thadeu de Russo e Carmo.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .actor import Actor as Actor
    from .actor_events import ActorEvent as ActorEvent
    from .actor_events import DeadLetter as DeadLetter
    from .actor_events import GivenUp as GivenUp
    from .actor_events import Restarted as Restarted
    from .actor_events import Stopped as Stopped
    from .address import Address as Address
    from .blocking import BlockingActorRef as BlockingActorRef
    from .blocking import BlockingActorSystem as BlockingActorSystem
    from .blocking import BlockingFuture as BlockingFuture
    from .dispatchers import ElasticPool as ElasticPool
    from .dispatchers import FixedPool as FixedPool
    from .dispatchers import ThreadPerActor as ThreadPerActor
    from .dispatchers import WorkStealingPool as WorkStealingPool
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
    from .event_stream import EventStream as EventStream
    from .future import Future as Future
    from .future import join as join
    from .message import Message as Message
    from .ref import ActorRef as ActorRef
    from .ref import Reply as Reply
    from .registry import Registry as Registry
    from .routers import BROADCAST as BROADCAST
    from .routers import ROUND_ROBIN as ROUND_ROBIN
    from .routers import SMALLEST_MAILBOX as SMALLEST_MAILBOX
    from .routers import Router as Router
    from .routers import RoutingLogic as RoutingLogic
    from .routers import group as group
    from .routers import pool as pool
    from .runtime.loop_dispatcher import Dispatcher as Dispatcher
    from .runtime.mailbox import Mailbox as Mailbox
    from .runtime.mailbox import MailboxFactory as MailboxFactory
    from .serialization.class_registry import register as register
    from .serialization.errors import SerializationError as SerializationError
    from .serialization.exception_registry import register_exception as register_exception
    from .settings import ActorsSettings as ActorsSettings
    from .settings import open_system as open_system
    from .stash import Stash as Stash
    from .stash import StashFullError as StashFullError
    from .status import publish_status as publish_status
    from .supervision.signals import ChildFailed as ChildFailed
    from .supervision.signals import Down as Down
    from .supervision.signals import Signal as Signal
    from .supervision.strategy import PERMANENT as PERMANENT
    from .supervision.strategy import TEMPORARY as TEMPORARY
    from .supervision.strategy import AllForOne as AllForOne
    from .supervision.strategy import OneForOne as OneForOne
    from .supervision.strategy import RestartType as RestartType
    from .supervision.strategy import SupervisorStrategy as SupervisorStrategy
    from .system import ActorSystem as ActorSystem
    from .timers import Timers as Timers

_EXPORTS = {
    "actor": "Actor",
    "actor_events": "ActorEvent DeadLetter GivenUp Restarted Stopped",
    "address": "Address",
    "blocking": "BlockingActorRef BlockingActorSystem BlockingFuture",
    "dispatchers": "ElasticPool FixedPool ThreadPerActor WorkStealingPool",
    "durable_mailbox.mailboxes": "DurableMailboxes UnreadableRecord",
    "errors": "ActorError ActorInterruptedError ActorStoppedError AlreadyLinkedError "
    "AskTimeoutError DuplicateReplyError EscalatedError NameTakenError "
    "NoSenderError NoSuchActorError NodeUnreachableError SystemClosedError "
    "UnhandledMessageError WrongContextError",
    "event_stream": "EventStream",
    "future": "Future join",
    "message": "Message",
    "ref": "ActorRef Reply",
    "registry": "Registry",
    "routers": "BROADCAST ROUND_ROBIN SMALLEST_MAILBOX Router RoutingLogic group pool",
    "runtime.loop_dispatcher": "Dispatcher",
    "runtime.mailbox": "Mailbox MailboxFactory",
    "serialization.class_registry": "register",
    "serialization.errors": "SerializationError",
    "serialization.exception_registry": "register_exception",
    "settings": "ActorsSettings open_system",
    "stash": "Stash StashFullError",
    "status": "publish_status",
    "supervision.signals": "ChildFailed Down Signal",
    "supervision.strategy": "PERMANENT TEMPORARY AllForOne OneForOne RestartType SupervisorStrategy",
    "system": "ActorSystem",
    "timers": "Timers",
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _MODULE_OF:
            return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
