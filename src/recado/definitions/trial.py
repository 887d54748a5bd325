"""Tries definitions on copies of the objects that they name, and reports what an import would change.

Each definition is compared with the broker, and carried out on copies: of those objects of the broker that the
document names, and of those that it adds. Nothing in the broker is changed, and the cost depends on the
document, not on the number of objects in the broker.

DT1  A definition that passed can be carried out as long as the names that the trial has reserved are reserved.
DT2  An import leaves every object that is reported as unchanged as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Final, Literal

import msgspec

from recado.amqp.errors import AmqpError
from recado.broker.access import Permission, User
from recado.broker.arguments import QueueSettings
from recado.broker.binding import Binding
from recado.broker.broker import Broker
from recado.broker.checks import to_comparable
from recado.broker.exchange import Exchange
from recado.broker.policy import Policies, Policy
from recado.broker.queue import Queue
from recado.broker.steps import STEP_UNITS_MAX, Steps, chunks
from recado.broker.vhost import Vhost

from .document import (
    OWN_PARAMETERS,
    BindingDefinition,
    Definition,
    DefinitionsError,
    ExchangeDefinition,
    GlobalParameterDefinition,
    PermissionDefinition,
    PolicyDefinition,
    QueueDefinition,
    UserDefinition,
    VhostDefinition,
)

OBJECTS_PER_STEP: Final = 500  # copies to free
SECRET: Final = "(secret)"  # shown instead of the hash of a password

Action = Literal["created", "changed", "unchanged", "skipped"]


class Outcome(msgspec.Struct, frozen=True):
    """What an import would do with a definition."""

    action: Action
    kind: str
    identity: dict[str, Any]
    """The fields that identify the object, such as vhost and name."""
    changes: dict[str, tuple[Any, Any]] = {}
    """By field: from, to."""
    reason: str = ""
    """Why it is skipped."""
    cost: int = 0
    """To carry it out, in addition to `UNITS_PER_DEFINITION` and to the cost of its bytes."""


class TrialQueue:
    """A queue of a trial, with what declarations and bindings need of it."""

    __slots__ = ("declared_settings", "name", "owner")

    deleted = False

    def __init__(self, name: str, settings: QueueSettings, owner: object | None = None) -> None:
        self.name = name
        self.declared_settings = settings
        self.owner = owner

    @property
    def survives_restart(self) -> bool:
        return self.declared_settings.durable and not self.declared_settings.exclusive

    stores_bindings = has_stored_bindings = survives_restart


class TrialVhost:
    """The copies of the objects of a vhost."""

    def __init__(self, name: str, live: Vhost[Queue] | None) -> None:
        """`live` is the vhost of the broker, None if the document adds it."""
        self.live = Vhost(name) if live is None else live
        self.copy: Vhost[TrialQueue] = Vhost(name)
        self.copy.settings = self.live.settings
        self.copy.binding_count = self.live.binding_count
        self.has_new_limits = False
        self.new_queue_count = self.new_binding_count = 0
        self.new_streams: list[TrialQueue] = []
        self.policies: dict[tuple[bool, str], Policy] = {}  # of the document
        self._effective_policies: Policies | None = None
        self._new_bindings: set[Hashable] = set()
        self._known_bindings: set[Hashable] | None = None

    def find_exchange(self, name: str) -> Exchange[TrialQueue] | None:
        """Return a copy of an exchange, without its bindings, or a new exchange."""
        found = self.copy.exchanges.get(name)
        if found is None and (existing := self.live.exchanges.get(name)) is not None:
            found = self.copy.exchanges[name] = Exchange(name, existing.declared_settings)
        return found

    def find_queue(self, name: str) -> TrialQueue | None:
        """Return a copy of a queue, or a new queue."""
        found = self.copy.queues.get(name)
        if found is None and (existing := self.live.queues.get(name)) is not None:
            found = TrialQueue(name, existing.declared_settings, existing.owner)
            self.copy.queues[name] = found
        return found

    def find_destination(
        self, wanted: BindingDefinition
    ) -> TrialQueue | Exchange[TrialQueue] | None:
        name = wanted.destination
        return self.find_queue(name) if wanted.to_queue else self.find_exchange(name)

    def add_queue(self, name: str, settings: QueueSettings) -> None:
        queue = self.copy.queues[name] = TrialQueue(name, settings)
        self.new_queue_count += 1
        if settings.queue_type == "stream" and queue.survives_restart:
            self.new_streams.append(queue)

    def effective_settings(self, stream: TrialQueue) -> QueueSettings:
        """Return the settings of a new stream combined with the policies that will exist."""
        if self._effective_policies is None:
            self._effective_policies = Policies()
            merged = self.live.policies.by_name | self.policies
            self._effective_policies.set(*merged.values())
        return self._effective_policies.effective_queue_settings(
            stream.name, stream.declared_settings
        )

    def is_bound(self, wanted: BindingDefinition) -> Steps[bool]:
        """Return whether a binding exists, or is in the document for the second time.

        The arguments of a document may differ from those of an existing binding in details that JSON does not
        express, such as integer width, so they are compared without these.
        """
        identity = _identify(wanted)
        if identity in self._new_bindings:
            return True
        source = self.live.exchanges.get(wanted.source)
        destinations: Any = self.live.queues if wanted.to_queue else self.live.exchanges
        destination = destinations.get(wanted.destination)
        if source is None or destination is None:
            return False
        key, arguments = wanted.routing_key, wanted.arguments
        if source.find_binding(destination, key, arguments) is not None:
            return True
        if not arguments:
            return False
        if self._known_bindings is None:
            self._known_bindings = yield from self._identify_bindings()
        return identity in self._known_bindings

    def _identify_bindings(self) -> Steps[set[Hashable]]:
        """Return the identities of the existing bindings with arguments."""
        found: set[Hashable] = set()
        for exchange in list(self.live.exchanges.values()):
            for part in chunks(list(exchange.bindings.values()), STEP_UNITS_MAX):
                found.update(_identify_existing(each) for each in part if each.arguments)
                yield len(part)
        return found

    def bind(self, wanted: BindingDefinition) -> int:
        """Add a binding to the copy of its exchange, and remove it again; return the cost.

        Raises `AmqpError` if it is invalid or the limit of the vhost is reached.
        """
        source, name = self.copy.exchanges[wanted.source], wanted.destination
        destination = (
            self.copy.find_accessible_queue(None, name)
            if wanted.to_queue
            else self.copy.exchanges[name]
        )
        if not self.has_new_limits:
            self.copy.check_binding_limit(source.name, name)
        binding = source.bind(destination, wanted.routing_key, wanted.arguments)
        assert binding is not None, "a copy has no bindings"
        self.copy.binding_count += 1
        self.new_binding_count += 1
        self._new_bindings.add(_identify(wanted))
        return source.bind_cost + source.unbind(binding)

    def discard(self) -> Steps[None]:
        """Free the copies in portions."""
        known = set() if self._known_bindings is None else self._known_bindings
        takers: tuple[tuple[Collection[Any], Callable[[], object]], ...] = (
            (self.copy.queues, self.copy.queues.popitem),
            (self.copy.exchanges, self.copy.exchanges.popitem),
            (self.new_streams, self.new_streams.pop),
            (self._new_bindings, self._new_bindings.pop),
            (known, known.pop),
        )
        for objects, take in takers:
            while objects:
                for _ in range(min(OBJECTS_PER_STEP, len(objects))):
                    take()
                yield STEP_UNITS_MAX


class ImportTrial:
    """Tries the definitions of a document, in the order of an import."""

    def __init__(self, broker: Broker, *, reserve: bool = False) -> None:
        """With `reserve`, no client can declare or delete what the definitions name until `release`."""
        self._broker = broker
        self._reserve = reserve
        self._parameters: dict[str, object] = {}
        self._users: dict[str, User] = {}
        self._vhosts: dict[str, TrialVhost] = {}

    def examine(self, wanted: Definition) -> Steps[Outcome]:
        """Try a definition; return what an import would do. Raises `DefinitionsError` if it cannot be imported.

        The steps yield only costs that exceed `UNITS_PER_TRIAL`, which the caller adds for every definition.
        """
        match wanted:
            case GlobalParameterDefinition():
                return self._examine_parameter(wanted)
            case UserDefinition():
                return self._examine_user(wanted)
            case VhostDefinition():
                return self._examine_vhost(wanted)
            case PermissionDefinition():
                return self._examine_permission(wanted)
            case PolicyDefinition():
                return self._examine_policy(wanted)
            case ExchangeDefinition():
                return (yield from self._examine_exchange(wanted))
            case QueueDefinition():
                return (yield from self._examine_queue(wanted))
            case BindingDefinition():
                return (yield from self._examine_binding(wanted))

    # ── users and vhosts ──────────────────────────────────────────────────────────────────────────────

    def _examine_parameter(self, wanted: GlobalParameterDefinition) -> Outcome:
        name = wanted.name
        identity = {"name": name}
        if name in OWN_PARAMETERS:
            return Outcome("unchanged", "global_parameter", identity)
        known = self._parameters if name in self._parameters else self._broker.global_parameters
        before = {"value": known[name]} if name in known else None
        self._parameters[name] = wanted.value
        return _compare("global_parameter", identity, before, {"value": wanted.value})

    def _find_user(self, name: str) -> User | None:
        return self._users.get(name) or self._broker.users.get(name)

    def _examine_user(self, wanted: UserDefinition) -> Outcome:
        name = wanted.user.name
        known = self._find_user(name)
        user = self._users[name] = wanted.apply_to(known)
        before = None if known is None else _describe_user(known)
        outcome = _compare("user", {"name": name}, before, _describe_user(user))
        if "password_hash" in outcome.changes:
            outcome.changes["password_hash"] = SECRET, SECRET
        return outcome

    def _examine_permission(self, grant: PermissionDefinition) -> Outcome:
        user = self._find_user(grant.user)
        if user is None:
            raise _error_at(grant, f"there is no user '{grant.user}'; add it to the users")
        self._find_vhost(grant)
        identity = {"user": grant.user, "vhost": grant.vhost}
        known: msgspec.Struct | None
        if isinstance(grant.permission, Permission):
            kind, known = "permission", user.permissions.get(grant.vhost)
        else:
            identity["exchange"] = grant.exchange or ""
            kind, known = (
                "topic_permission",
                user.topic_permissions.get((grant.vhost, identity["exchange"])),
            )
        self._users[grant.user] = grant.apply_to(user)
        before = None if known is None else msgspec.structs.asdict(known)
        return _compare(kind, identity, before, msgspec.structs.asdict(grant.permission))

    def _find_vhost(self, wanted: Any, *, create: bool = False) -> TrialVhost:
        name: str = wanted.vhost
        found = self._vhosts.get(name)
        if found is None:
            live = self._broker.vhosts.get(name)
            if name in self._broker.deleting_vhosts:
                raise _error_at(wanted, f"vhost '{name}' is being deleted; try again later")
            if live is None and not create:
                raise _error_at(wanted, f"there is no vhost '{name}'; add it to the vhosts")
            found = self._vhosts[name] = TrialVhost(name, live)
        return found

    def _examine_vhost(self, wanted: VhostDefinition) -> Outcome:
        is_new = wanted.vhost not in self._vhosts and wanted.vhost not in self._broker.vhosts
        vhost = self._find_vhost(wanted, create=wanted.creates)
        before = None if is_new else _describe_vhost(vhost)
        vhost.copy.settings = wanted.apply_to(vhost.copy.settings)
        vhost.has_new_limits |= wanted.limits is not None
        return _compare("vhost", {"name": wanted.vhost}, before, _describe_vhost(vhost))

    def _examine_policy(self, wanted: PolicyDefinition) -> Outcome:
        vhost, policy = self._find_vhost(wanted), wanted.policy
        key = policy.operator, policy.name
        known = vhost.policies.get(key) or vhost.live.policies.by_name.get(key)
        vhost.policies[key] = policy
        before = None if known is None else _describe_policy(known)
        identity = {"vhost": wanted.vhost, "name": policy.name}
        return _compare(policy.kind, identity, before, _describe_policy(policy))

    # ── topology ──────────────────────────────────────────────────────────────────────────────────────

    def _examine_exchange(self, wanted: ExchangeDefinition) -> Steps[Outcome]:
        vhost, name = self._find_vhost(wanted), wanted.name
        identity = {"vhost": wanted.vhost, "name": name}
        if not name or name.startswith("amq."):
            if name in vhost.copy.exchanges:
                return Outcome("unchanged", "exchange", identity)
            return _skip("exchange", identity, "names with amq. are reserved")
        yield from self._claim(vhost, "exchange", name)
        exists = vhost.find_exchange(name) is not None
        try:
            vhost.copy.declare_exchange(
                name,
                wanted.kind,
                durable=wanted.durable,
                auto_delete=wanted.auto_delete,
                internal=wanted.internal,
                arguments=wanted.arguments,
            )
        except AmqpError as error:
            raise _declare_error(wanted, error, exists=exists) from None
        return Outcome("unchanged" if exists else "created", "exchange", identity)

    def _examine_queue(self, wanted: QueueDefinition) -> Steps[Outcome]:
        vhost, name = self._find_vhost(wanted), wanted.name
        identity = {"vhost": wanted.vhost, "name": name}
        if name.startswith("amq."):
            return _skip("queue", identity, "names with amq. are reserved")
        yield from self._claim(vhost, "queue", name)
        exists = vhost.find_queue(name) is not None
        try:
            settings = wanted.parse_settings(vhost.copy.settings.default_queue_type)
            vhost.copy.find_equivalent_queue(name, settings, None)
        except AmqpError as error:
            raise _declare_error(wanted, error, exists=exists) from None
        if not exists:
            vhost.add_queue(name, settings)
        return Outcome("unchanged" if exists else "created", "queue", identity)

    def _examine_binding(self, wanted: BindingDefinition) -> Steps[Outcome]:
        vhost = self._find_vhost(wanted)
        identity = {
            "vhost": wanted.vhost,
            "source": wanted.source,
            "destination": wanted.destination,
            "destination_type": "queue" if wanted.to_queue else "exchange",
            "routing_key": wanted.routing_key,
            "arguments": wanted.arguments,
        }
        if wanted.source:  # else it is one of the bindings that every queue has
            yield from self._claim(vhost, "exchange", wanted.source)
        entity = "queue" if wanted.to_queue else "exchange"
        yield from self._claim(vhost, entity, wanted.destination)
        for name, found in (
            (wanted.source, vhost.find_exchange(wanted.source)),
            (wanted.destination, vhost.find_destination(wanted)),
        ):
            if found is None:
                return _skip("binding", identity, f"there is no '{name}' in '{wanted.vhost}'")
        if not wanted.source or (yield from vhost.is_bound(wanted)):
            return Outcome("unchanged", "binding", identity)
        try:
            cost = vhost.bind(wanted)
        except AmqpError as error:
            raise _error_at(wanted, error.reply_text) from None
        yield cost
        return Outcome("created", "binding", identity, cost=cost)

    def _claim(self, vhost: TrialVhost, entity: str, name: str) -> Steps[None]:
        """Reserve a name; wait for the end of a deletion, after which the name is free."""
        if self._reserve and (entity, name) not in vhost.live.reserved:
            vhost.live.reserved.add((entity, name))
            while vhost.live.is_deleting(entity, name):
                self._broker.background.advance(STEP_UNITS_MAX)
                yield STEP_UNITS_MAX

    # ── the whole document ────────────────────────────────────────────────────────────────────────────

    def find_exceeded_limits(self) -> Iterator[DefinitionsError]:
        """Yield an error for each limit of a vhost that would be exceeded, unless the limits are new.

        Bindings were counted before; this finds those that clients have added since.
        """
        for name, vhost in self._vhosts.items():
            limits, live = vhost.copy.settings.limits, vhost.live
            queue_count = self._broker.count_queues(live) if vhost.new_queue_count else 0
            for kind, limit, added, count in (
                ("queues", limits.max_queues, vhost.new_queue_count, queue_count),
                ("bindings", limits.max_bindings, vhost.new_binding_count, live.binding_count),
            ):
                exceeded = limit is not None and added and count + added > limit
                if exceeded and not vhost.has_new_limits:
                    yield DefinitionsError(
                        f"{kind}: adding {added} to vhost '{name}' would exceed its limit of"
                        f" {limit} (max-{kind}): it has {count}; raise the limit, or remove {kind}"
                        " from the file"
                    )

    def claim_limits(self) -> None:
        """Count the queues and bindings to be added for the limits of other clients, until `release`."""
        for vhost in self._vhosts.values():
            vhost.live.pending_queue_count = vhost.new_queue_count
            vhost.live.pending_binding_count = vhost.new_binding_count

    def list_new_streams(self) -> Iterator[tuple[str, str, QueueSettings]]:
        """Yield vhost, name and effective settings of the durable streams that the document adds."""
        for name, vhost in self._vhosts.items():
            for stream in vhost.new_streams:
                yield name, stream.name, vhost.effective_settings(stream)

    def reserve_in(self, created: Vhost[Queue]) -> None:
        """Reserve names in a vhost that did not exist before."""
        placeholder = self._vhosts[created.name].live
        created.reserved = placeholder.reserved
        created.pending_queue_count = placeholder.pending_queue_count
        created.pending_binding_count = placeholder.pending_binding_count

    def release(self) -> Steps[None]:
        """Release the reserved names, and free the copies."""
        while self._vhosts:
            name, vhost = self._vhosts.popitem()
            live = self._broker.vhosts.get(name)
            if self._reserve and live is not None:
                yield from live.release_reserved()
            yield from vhost.discard()


def _compare(
    kind: str, identity: dict[str, Any], before: dict[str, Any] | None, after: dict[str, Any]
) -> Outcome:
    if before is None:
        return Outcome("created", kind, identity)
    changes = {key: (before[key], value) for key, value in after.items() if before[key] != value}
    return Outcome("changed" if changes else "unchanged", kind, identity, changes)


def _skip(kind: str, identity: dict[str, Any], reason: str) -> Outcome:
    return Outcome("skipped", kind, identity, reason=reason)


def _describe_user(user: User) -> dict[str, Any]:
    limits = msgspec.to_builtins(user.limits)
    return {"password_hash": user.password_hash, "tags": list(user.tags), "limits": limits}


def _describe_vhost(vhost: TrialVhost) -> dict[str, Any]:
    settings = vhost.copy.settings
    return {
        "default_queue_type": settings.default_queue_type,
        "limits": msgspec.to_builtins(settings.limits),
        "description": settings.description,
        "tags": list(settings.tags),
    }


def _describe_policy(policy: Policy) -> dict[str, Any]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def _identify(wanted: BindingDefinition) -> Hashable:
    key, arguments = wanted.routing_key, wanted.arguments
    comparable = to_comparable(arguments) if arguments else None
    return wanted.source, wanted.to_queue, wanted.destination, key, comparable


def _identify_existing(binding: Binding[Any]) -> Hashable:
    destination = binding.destination
    key, arguments = binding.routing_key, to_comparable(binding.arguments)
    return binding.source, isinstance(destination, Queue), destination.name, key, arguments


def _error_at(wanted: Definition, problem: str) -> DefinitionsError:
    return DefinitionsError(f"{wanted.location}: {problem}")


def _declare_error(wanted: Definition, error: AmqpError, *, exists: bool) -> DefinitionsError:
    """Return the error for a refused declaration, with a hint if one that differs exists already."""
    hint = "; delete the existing one, or remove the entry from the file" if exists else ""
    return _error_at(wanted, f"{error.reply_text}{hint}")
