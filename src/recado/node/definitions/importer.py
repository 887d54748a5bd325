"""Definitions into a broker: everything, or nothing if any of it cannot be.

D1  After an import, all that the document defines is there as it is defined there.
D2  An import that fails has changed nothing, for it is rehearsed on a copy first; nor does a crash leave half.
D3  Importing once more changes nothing.

As with RabbitMQ, what the document does not mention stays; users, permissions and policies of the same name are
replaced; things named `amq.…` are left out, and bindings to what is not there, which its own exports have.
A queue or an exchange that is there and differs is an error; RabbitMQ says nothing and leaves it as it is.
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
    """Import a document as JSON has it; gives what was left out and why.

    With `vhost` all of it goes there. `loopback_users` are those who may only come via localhost.
    """
    definitions = read_definitions(document, vhost)
    DefinitionsImporter(copy_topology(broker), now, loopback_users).run(definitions)
    broker.store.begin_atomic_group()
    try:
        return DefinitionsImporter(broker, now, loopback_users).run(definitions)
    finally:
        broker.store.end_atomic_group()


class _PlaceholderOwner:
    """The owner of an exclusive queue in a copy."""

    has_ended = False

    def __init__(self) -> None:
        self.exclusive_queues: dict[Queue, None] = {}


def copy_topology(broker: Broker) -> Broker:
    """The same vhosts, users, exchanges, queues and bindings, without messages and without a disk."""
    copy = Broker(broker.new_name, broker.vhosts)
    copy.users.update(broker.users)
    for name, vhost in broker.vhosts.items():
        twin = copy.vhosts[name]
        twin.settings = vhost.settings
        for exchange in vhost.exchanges.values():
            if exchange.name not in twin.exchanges:
                twin.exchanges[exchange.name] = Exchange(exchange.name, exchange.declared_settings)
        for queue in vhost.queues.values():
            owner = None if queue.owner is None else _PlaceholderOwner()
            copy.create_queue(twin, queue.name, queue.declared_settings, owner, 0)
        for exchange in vhost.exchanges.values():
            for binding in exchange.bindings.values():
                if binding.destination.deleted:
                    continue
                to_queue = isinstance(binding.destination, Queue)
                things: Any = twin.queues if to_queue else twin.exchanges
                end = things[binding.destination.name]
                twin.exchanges[exchange.name].bind(end, binding.routing_key, binding.arguments)
    return copy


class DefinitionsImporter:
    """One way through the document. What cannot be is raised as it is met."""

    def __init__(self, broker: Broker, now: int, loopback_users: Collection[str]) -> None:
        self._broker = broker
        self._now = now
        self._loopback_users = loopback_users
        self._bound: dict[str, set[Hashable]] = {}

    def run(self, wanted: Definitions) -> list[str]:
        notes = list(wanted.notes)
        for user in wanted.users:
            self._import_user(user)
        for name in wanted.vhosts:
            if name not in self._broker.vhosts:
                self._broker.add_vhost(name, persist=True)
        self._check_queue_limits(wanted)
        for settings in wanted.settings:
            self._import_vhost_settings(settings)
        for grant in wanted.permissions:
            self._import_permission(grant)
        self._import_policies(wanted.policies)
        for exchange in wanted.exchanges:
            notes += self._import_exchange(exchange)
        for queue in wanted.queues:
            notes += self._import_queue(queue)
        for binding in wanted.bindings:
            notes += self._import_binding(binding)
        return notes

    # ── who ───────────────────────────────────────────────────────────────────────────────────────────

    def _import_user(self, wanted: UserDefinition) -> None:
        """Permissions are told apart from users, so those that are there stay."""
        user = wanted.user
        known = self._broker.users.get(user.name)
        if known is not None:
            limits = user.limits if wanted.has_limits else known.limits
            user = replace(known, password_hash=user.password_hash, tags=user.tags, limits=limits)
        local = user.name in self._loopback_users
        self._broker.add_user(replace(user, loopback_only=local), persist=True)

    def _import_permission(self, grant: PermissionDefinition) -> None:
        user = self._broker.users.get(grant.user)
        if user is None:
            raise _error_at(grant, f"there is no user '{grant.user}'; name it among the users")
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
        """Set what the document says of a vhost, and leave the rest as it is."""
        changes: dict[str, Any] = {}
        if wanted.default_queue_type is not None:
            changes["default_queue_type"] = wanted.default_queue_type
        if wanted.limits is not None:
            changes["limits"] = wanted.limits
        if changes:
            vhost = self._find_vhost(wanted)
            self._broker.configure_vhost(vhost.name, replace(vhost.settings, **changes))

    def _check_queue_limits(self, wanted: Definitions) -> None:
        """Refuse more queues than a vhost may have, unless the document sets its limits as well."""
        limited_anew = {each.vhost for each in wanted.settings if each.limits is not None}
        added: dict[str, set[str]] = {}
        for queue in wanted.queues:
            vhost = self._find_vhost(queue)
            if queue.name not in vhost.queues and not queue.name.startswith("amq."):
                added.setdefault(vhost.name, set()).add(queue.name)
        for name in added.keys() - limited_anew:
            vhost = self._broker.vhosts[name]
            most, count = vhost.settings.limits.max_queues, self._broker.count_queues(vhost)
            if most is not None and count + len(added[name]) > most:
                raise DefinitionsError(
                    f"queues: adding {len(added[name])} to vhost '{name}' would exceed its limit of"
                    f" {most} (max-queues), and it has {count}; raise the limit, or take queues out"
                    " of the file"
                )

    # ── what ──────────────────────────────────────────────────────────────────────────────────────────

    def _import_policies(self, wanted: Iterable[PolicyDefinition]) -> None:
        """All of a vhost at once: queues are looked through once, not for every policy."""
        for wanted_policy in wanted:
            self._find_vhost(wanted_policy)
        for vhost, group in groupby(sorted(wanted, key=_vhost_of), key=_vhost_of):
            self._broker.set_policies(vhost, [each.policy for each in group], self._now)

    def _import_exchange(self, wanted: ExchangeDefinition) -> Iterable[str]:
        vhost = self._find_vhost(wanted)
        if not wanted.name or wanted.name.startswith("amq."):
            if wanted.name not in vhost.exchanges:
                yield f"{wanted.location}: left out, for names with amq. are the broker's own"
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
            yield f"{wanted.location}: left out, for names with amq. are the broker's own"
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
        things: Any = vhost.queues if wanted.to_queue else vhost.exchanges
        for name, known in ((wanted.source, vhost.exchanges), (wanted.destination, things)):
            if name not in known:
                yield f"{wanted.location}: left out, for there is no '{name}' in '{vhost.name}'"
                return
        if not wanted.source or self._is_bound(vhost, wanted):
            return
        end = things[wanted.destination]
        try:
            if wanted.to_queue:
                vhost.bind_queue(end.name, wanted.source, wanted.routing_key, wanted.arguments)
            else:
                vhost.bind_exchange(end.name, wanted.source, wanted.routing_key, wanted.arguments)
        except AmqpError as error:
            raise _error_at(wanted, error.reply_text) from None

    def _is_bound(self, vhost: Vhost[Queue], wanted: BindingDefinition) -> bool:
        """Also with an argument that JSON does not tell apart, such as an integer of other width (D3)."""
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
            raise _error_at(wanted, f"there is no vhost '{wanted.vhost}'; name it among the vhosts")
        return vhost


def _binding_key(binding: Binding[Any]) -> Hashable:
    end = binding.destination
    key, arguments = binding.routing_key, to_comparable(binding.arguments)
    return binding.source, isinstance(end, Queue), end.name, key, arguments


def _vhost_of(wanted: PolicyDefinition) -> str:
    return wanted.vhost


def _error_at(wanted: VhostScopedDefinition, what: str) -> DefinitionsError:
    return DefinitionsError(f"{wanted.location}: {what}")


def _declare_error(
    wanted: VhostScopedDefinition, error: AmqpError, is_there: bool
) -> DefinitionsError:
    """What is there already, and differs, is the only thing that is not the document's own fault."""
    hint = "; delete the one that is there, or take it out of the file" if is_there else ""
    return _error_at(wanted, f"{error.reply_text}{hint}")
