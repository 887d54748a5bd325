"""The observer of a broker is told of every change of an object, after the change, and of nothing else."""

from __future__ import annotations

from typing import Any

import msgspec

from recado.broker.access import Permission, User
from recado.broker.alteration import alter
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.limits import VhostLimits
from recado.broker.observer import IGNORE_CHANGES, Change, ChangeObserver
from recado.broker.policy import Policy
from recado.broker.steps import run_to_completion
from recado.broker.vhost import VhostSettings

from .stage import new_queue

EVERYTHING = Permission(".*", ".*", ".*")


class Notes(ChangeObserver):
    """Notes the kind of each change, and whether the object exists."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.taken: list[tuple[Any, ...]] = []

    def vhost_changed(self, change: Change, vhost: str) -> None:
        self.taken.append((change, "vhost", vhost, vhost in self.broker.vhosts))

    def user_changed(self, before: User | None, after: User | None) -> None:
        name = (before or after or User("")).name
        self.taken.append(("user", before is None, after is None, name in self.broker.users))

    def policy_changed(self, change: Change, vhost: str, policy: Policy) -> None:
        self.taken.append((change, policy.kind, policy.name))

    def parameter_changed(self, change: Change, component: str, vhost: str, name: str) -> None:
        self.taken.append((change, component, vhost, name))

    def exchange_changed(self, change: Change, vhost: str, exchange: Any) -> None:
        found = exchange.name in self.broker.vhosts[vhost].exchanges
        self.taken.append((change, "exchange", exchange.name, found))

    def queue_changed(self, change: Change, queue: Any) -> None:
        self.taken.append((change, "queue", queue.name, queue.name in queue.vhost.queues))

    def binding_changed(self, change: Change, vhost: str, binding: Any) -> None:
        self.taken.append((change, "binding", binding.source, binding.destination.name))


def observed() -> tuple[Broker, Notes]:
    broker = Broker(lambda: "name")
    notes = Notes(broker)
    broker.set_observer(notes)
    return broker, notes


def take(notes: Notes) -> list[tuple[Any, ...]]:
    taken, notes.taken = notes.taken, []
    return taken


def test_vhosts_users_and_parameters() -> None:
    broker, notes = observed()
    broker.add_vhost("v")
    assert broker.vhosts["v"].observer is notes
    assert take(notes) == [(Change.CREATED, "vhost", "v", True)]
    settings = VhostSettings(description="d")
    broker.configure_vhost("v", settings)
    assert take(notes) == [(Change.CHANGED, "vhost", "v", True)]
    for limit, change in ((1, Change.CREATED), (2, Change.CHANGED), (None, Change.DELETED)):
        limits = VhostLimits(max_queues=limit)
        broker.configure_vhost("v", msgspec.structs.replace(settings, limits=limits))
        assert take(notes)[1:] == [(change, "vhost-limits", "v", "limits")]
    for value, change in (
        (1, Change.CREATED),
        (2, Change.CHANGED),
        (msgspec.UNSET, Change.DELETED),
    ):
        broker.set_global_parameter("g", value)
        assert take(notes) == [(change, "", "", "g")]
    user = User("ana", permissions={"v": EVERYTHING})
    broker.add_user(user)
    broker.add_user(user.without_vhost("v"))
    broker.delete_user("ana")
    assert take(notes) == [
        ("user", True, False, True),
        ("user", False, False, True),
        ("user", False, True, False),
    ]
    broker.delete_vhost("v", 0, lambda: None)
    assert take(notes) == [(Change.DELETED, "vhost", "v", False)]


def test_queues_exchanges_bindings_and_policies() -> None:
    broker, notes = observed()
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("x", "topic", auto_delete=True)
    vhost.declare_exchange("x", "topic", auto_delete=True)
    queue = broker.create_queue(vhost, "q", QueueSettings(), None, 0)
    for _ in range(2):
        vhost.bind_queue("q", "x", "k")
    assert take(notes) == [
        (Change.CREATED, "exchange", "x", True),
        (Change.CREATED, "queue", "q", True),
        (Change.CREATED, "binding", "x", "q"),
    ]
    policy = Policy(name="p", pattern="^q", definition={"max-length": 1})
    broker.set_policies("/", [policy], 0)
    broker.set_policies("/", [policy], 0)
    broker.delete_policy("/", "p", 0)
    assert take(notes) == [
        (Change.CREATED, "policy", "p"),
        (Change.CHANGED, "queue", "q", True),
        (Change.CHANGED, "policy", "p"),
        (Change.DELETED, "policy", "p"),
        (Change.CHANGED, "queue", "q", True),
    ]
    broker.delete_queue(queue, 0)
    assert take(notes) == [
        (Change.DELETED, "binding", "x", "q"),
        (Change.DELETED, "exchange", "x", False),
        (Change.DELETED, "queue", "q", False),
    ]
    reply = broker.create_reply_queue(vhost, 0)
    broker.delete_queue(reply, 0)
    assert take(notes) == []


def test_another_observer_replaces_the_first() -> None:
    broker, notes = observed()
    broker.set_observer(IGNORE_CHANGES)
    broker.add_vhost("v")
    broker.create_queue(broker.vhosts["/"], "q", QueueSettings(), None, 0)
    assert take(notes) == []


def test_a_queue_that_is_altered() -> None:
    broker, notes = observed()
    queue = new_queue(broker, "q")
    take(notes)
    for altered in (QueueSettings(durable=True), QueueSettings(durable=True, max_priority=5)):
        run_to_completion(alter(broker, queue, altered))
        assert take(notes) == [(Change.CHANGED, "queue", "q", True)]
