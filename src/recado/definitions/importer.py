"""Import of definitions into a broker: all of them, or none if any of them cannot be imported.

As with RabbitMQ, entities that the document does not mention stay, and users, permissions, policies and global
parameters of the same name are replaced. Entities named `amq.…` are skipped, and so are bindings to entities
that do not exist, which occur in RabbitMQ's exports. An existing queue or exchange that differs is an error;
RabbitMQ silently leaves it as it is.

DI1  After an import, everything that the document defines exists as it is defined there.
DI2  A failed import has changed nothing, because it is tried on a copy first, and because the folders of new
     streams, the only part for which the disk can fail, are created before anything else. A crash leaves all
     of it or nothing, because it is one atomic group for the store.
DI3  Importing the same document again changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from recado.amqp.errors import AmqpError
from recado.broker.access import Permission
from recado.broker.arguments import parse_queue_arguments
from recado.broker.binding import Binding
from recado.broker.broker import Broker
from recado.broker.checks import to_comparable
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.stream import Stream
from recado.broker.vhost import Vhost

from .document import (
    BindingDefinition,
    Definitions,
    DefinitionsError,
    ExchangeDefinition,
    PermissionDefinition,
    PolicyDefinition,
    QueueDefinition,
    UserDefinition,
    VhostDefinition,
    read_definitions,
)

VhostScopedDefinition = (
    PermissionDefinition
    | PolicyDefinition
    | VhostDefinition
    | ExchangeDefinition
    | QueueDefinition
    | BindingDefinition
)


def import_definitions(
    broker: Broker,
    document: object,
    now: int,
    *,
    vhost: str | None = None,
    loopback_users: Collection[str] = (),
) -> list[str]:
    """Import a parsed JSON document; return notes on skipped entries.

    With `vhost`, everything is imported into that vhost. `loopback_users` are the users that can only log in
    via localhost. Raises `DefinitionsError`, and `OSError` if new streams cannot be created on disk.
    """
    definitions = read_definitions(document, vhost)
    for name in definitions.vhosts:
        if name in broker.deleting_vhosts:
            raise DefinitionsError(f"vhost '{name}' is being deleted; try again later")
    trial = copy_topology(broker)
    DefinitionsImporter(trial, now, loopback_users).run(definitions)
    broker.store.prepare_streams(_list_new_streams(trial, broker))
    broker.store.begin_atomic_group()
    try:
        return DefinitionsImporter(broker, now, loopback_users).run(definitions)
    finally:
        broker.store.end_atomic_group()


def _list_new_streams(trial: Broker, broker: Broker) -> list[Queue]:
    """Return the durable streams that the trial has and the broker does not."""
    return [
        queue
        for name, vhost in trial.vhosts.items()
        for queue in vhost.queues.values()
        if isinstance(queue, Stream)
        and queue.survives_restart
        and not (name in broker.vhosts and queue.name in broker.vhosts[name].queues)
    ]


class _PlaceholderOwner:
    """The owner of an exclusive queue in a copy of the topology."""

    has_ended = False

    def __init__(self) -> None:
        self.exclusive_queues: dict[Queue, None] = {}


def copy_topology(broker: Broker) -> Broker:
    """Return a broker with the same vhosts, users, policies, global parameters, exchanges, queues and bindings.

    It has no messages and no disk.
    """
    copy = Broker(broker.new_name, broker.vhosts)
    copy.users.update(broker.users)
    copy.global_parameters.update(broker.global_parameters)
    for name, vhost in broker.vhosts.items():
        copied = copy.vhosts[name]
        copied.settings = vhost.settings
        for exchange in vhost.exchanges.values():
            if exchange.name not in copied.exchanges:
                copied.exchanges[exchange.name] = Exchange(
                    exchange.name, exchange.declared_settings
                )
        for queue in vhost.queues.values():
            owner = None if queue.owner is None else _PlaceholderOwner()
            copy.create_queue(copied, queue.name, queue.declared_settings, owner, 0)
        for (
            policy
        ) in vhost.policies.by_name.values():  # for new queues; existing ones need none here
            copied.policies.set(policy)
        for exchange in vhost.exchanges.values():
            for binding in exchange.bindings.values():
                if binding.destination.deleted:
                    continue
                to_queue = isinstance(binding.destination, Queue)
                destinations: Any = copied.queues if to_queue else copied.exchanges
                destination = destinations[binding.destination.name]
                copied.add_binding(
                    copied.exchanges[exchange.name],
                    destination,
                    binding.routing_key,
                    binding.arguments,
                )
    return copy


class DefinitionsImporter:
    """One pass over the definitions. Raises `DefinitionsError` at the first that cannot be imported."""

    def __init__(self, broker: Broker, now: int, loopback_users: Collection[str]) -> None:
        self._broker = broker
        self._now = now
        self._loopback_users = loopback_users
        self._bound: dict[str, set[Hashable]] = {}
        self._with_new_limits: set[str] = set()

    def run(self, definitions: Definitions) -> list[str]:
        notes = list(definitions.notes)
        for name, value in definitions.global_parameters:
            self._broker.set_global_parameter(name, value)
        for user in definitions.users:
            self._import_user(user)
        for name in definitions.vhosts:
            if name not in self._broker.vhosts:
                self._broker.add_vhost(name, persist=True)
        self._with_new_limits = {
            each.vhost for each in definitions.settings if each.limits is not None
        }
        self._check_queue_limits(definitions)
        for settings in definitions.settings:
            self._import_vhost_settings(settings)
        for grant in definitions.permissions:
            self._import_permission(grant)
        self._import_policies(definitions.policies)
        for exchange in definitions.exchanges:
            notes += self._import_exchange(exchange)
        for queue in definitions.queues:
            notes += self._import_queue(queue)
        for binding in definitions.bindings:
            notes += self._import_binding(binding)
        return notes

    # ── users and vhosts ──────────────────────────────────────────────────────────────────────────────

    def _import_user(self, wanted: UserDefinition) -> None:
        """Add or replace a user. Permissions are entries of their own, so existing ones stay."""
        user = wanted.user
        known = self._broker.users.get(user.name)
        if known is not None:
            limits = user.limits if wanted.has_limits else known.limits
            user = replace(known, password_hash=user.password_hash, tags=user.tags, limits=limits)
        loopback_only = user.name in self._loopback_users
        self._broker.add_user(replace(user, loopback_only=loopback_only), persist=True)

    def _import_permission(self, grant: PermissionDefinition) -> None:
        user = self._broker.users.get(grant.user)
        if user is None:
            raise _error_at(grant, f"there is no user '{grant.user}'; add it to the users")
        vhost = self._find_vhost(grant).name
        if isinstance(grant.permission, Permission):
            permissions = {**user.permissions, vhost: grant.permission}
            user = replace(user, permissions=permissions)
        else:
            key = vhost, grant.exchange or ""
            narrowed = {**user.topic_permissions, key: grant.permission}
            user = replace(user, topic_permissions=narrowed)
        self._broker.add_user(user, persist=True)

    def _import_vhost_settings(self, wanted: VhostDefinition) -> None:
        """Set the settings that the document has for a vhost; others stay as they are."""
        settings = {
            "default_queue_type": wanted.default_queue_type,
            "limits": wanted.limits,
            "description": wanted.description,
            "tags": wanted.tags,
        }
        changes: Any = {key: value for key, value in settings.items() if value is not None}
        if changes:
            vhost = self._find_vhost(wanted)
            self._broker.configure_vhost(vhost.name, replace(vhost.settings, **changes))

    def _check_queue_limits(self, definitions: Definitions) -> None:
        """Raise if a vhost would exceed its limit of queues, unless the document sets its limits."""
        added: dict[str, set[str]] = {}
        for queue in definitions.queues:
            vhost = self._find_vhost(queue)
            if queue.name not in vhost.queues and not queue.name.startswith("amq."):
                added.setdefault(vhost.name, set()).add(queue.name)
        for name in added.keys() - self._with_new_limits:
            vhost = self._broker.vhosts[name]
            limit, count = vhost.settings.limits.max_queues, self._broker.count_queues(vhost)
            if limit is not None and count + len(added[name]) > limit:
                raise DefinitionsError(
                    f"queues: adding {len(added[name])} to vhost '{name}' would exceed its limit of"
                    f" {limit} (max-queues): it has {count}; raise the limit, or remove queues from"
                    " the file"
                )

    # ── topology ──────────────────────────────────────────────────────────────────────────────────────

    def _import_policies(self, wanted: Iterable[PolicyDefinition]) -> None:
        """Set all policies of a vhost at once, so that its queues are matched once and not for every policy."""
        for wanted_policy in wanted:
            self._find_vhost(wanted_policy)
        for vhost, group in groupby(sorted(wanted, key=_vhost_of), key=_vhost_of):
            self._broker.set_policies(vhost, [each.policy for each in group], self._now)

    def _import_exchange(self, wanted: ExchangeDefinition) -> Iterable[str]:
        vhost = self._find_vhost(wanted)
        if not wanted.name or wanted.name.startswith("amq."):
            if wanted.name not in vhost.exchanges:
                yield f"{wanted.location}: skipped, names with amq. are reserved"
            return
        try:
            vhost.declare_exchange(
                wanted.name,
                wanted.kind,
                durable=wanted.durable,
                auto_delete=wanted.auto_delete,
                internal=wanted.internal,
                arguments=wanted.arguments,
            )
        except AmqpError as error:
            raise _declare_error(wanted, error, wanted.name in vhost.exchanges) from None

    def _import_queue(self, wanted: QueueDefinition) -> Iterable[str]:
        vhost = self._find_vhost(wanted)
        if wanted.name.startswith("amq."):
            yield f"{wanted.location}: skipped, names with amq. are reserved"
            return
        try:
            settings = parse_queue_arguments(
                wanted.name,
                vhost.name,
                durable=wanted.durable,
                exclusive=False,
                auto_delete=wanted.auto_delete,
                arguments=wanted.arguments,
                default_type=None if wanted.has_type else vhost.settings.default_queue_type,
            )
            if vhost.find_equivalent_queue(wanted.name, settings, None) is None:
                self._broker.create_queue(vhost, wanted.name, settings, None, self._now)
        except AmqpError as error:
            raise _declare_error(wanted, error, wanted.name in vhost.queues) from None

    def _import_binding(self, wanted: BindingDefinition) -> Iterable[str]:
        vhost = self._find_vhost(wanted)
        destinations: Any = vhost.queues if wanted.to_queue else vhost.exchanges
        for name, known in ((wanted.source, vhost.exchanges), (wanted.destination, destinations)):
            if name not in known:
                yield f"{wanted.location}: skipped, there is no '{name}' in '{vhost.name}'"
                return
        if not wanted.source or self._is_bound(vhost, wanted):
            return
        limited = vhost.name not in self._with_new_limits
        bind = vhost.bind if limited else vhost.add_binding
        source, name = vhost.exchanges[wanted.source], wanted.destination
        try:
            if wanted.to_queue:
                vhost.find_accessible_queue(None, name)
            bind(source, destinations[name], wanted.routing_key, wanted.arguments)
        except AmqpError as error:
            raise _error_at(wanted, error.reply_text) from None

    def _is_bound(self, vhost: Vhost[Queue], wanted: BindingDefinition) -> bool:
        """Whether a binding with arguments exists already.

        Binding again does nothing if the arguments are identical. Those of a document may differ from those of
        the existing binding in details that JSON does not express, such as integer width, so they are compared
        without these. A binding without arguments is simply bound again.
        """
        if not wanted.arguments:
            return False
        if vhost.name not in self._bound:
            self._bound[vhost.name] = {
                _binding_key(binding)
                for exchange in vhost.exchanges.values()
                for binding in exchange.bindings.values()
                if not binding.destination.deleted
            }
        key, arguments = wanted.routing_key, to_comparable(wanted.arguments)
        identity = wanted.source, wanted.to_queue, wanted.destination, key, arguments
        return identity in self._bound[vhost.name]

    def _find_vhost(self, wanted: VhostScopedDefinition) -> Vhost[Queue]:
        vhost = self._broker.vhosts.get(wanted.vhost)
        if vhost is None:
            raise _error_at(wanted, f"there is no vhost '{wanted.vhost}'; add it to the vhosts")
        return vhost


def _binding_key(binding: Binding[Any]) -> Hashable:
    destination = binding.destination
    key, arguments = binding.routing_key, to_comparable(binding.arguments)
    return binding.source, isinstance(destination, Queue), destination.name, key, arguments


def _vhost_of(wanted: PolicyDefinition) -> str:
    return wanted.vhost


def _error_at(wanted: VhostScopedDefinition, problem: str) -> DefinitionsError:
    return DefinitionsError(f"{wanted.location}: {problem}")


def _declare_error(
    wanted: VhostScopedDefinition, error: AmqpError, exists: bool
) -> DefinitionsError:
    """Return the error for a refused declaration, with a hint if one that differs exists already."""
    hint = "; delete the existing one, or remove the entry from the file" if exists else ""
    return _error_at(wanted, f"{error.reply_text}{hint}")
