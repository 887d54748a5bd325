"""A virtual host: its exchanges, queues and bindings.

VH1  Every binding leads from an exchange to an exchange or a queue, which exist or are being deleted, and
     is registered at both ends.
VH2  An auto-delete exchange that had bindings still has one, unless its name is reserved.
VH3  `epoch` grows with every change that may change the route of a message, so that routes can be cached
     for an epoch.
VH4  `binding_count` is the number of bindings, including those that are still to be removed because an
     entity was deleted.
VH5  While a name is reserved, no client declares or deletes a queue or an exchange of that name, and the
     exchange is not auto-deleted. A reserved queue may still end by itself, as an expired one does.

Errors have RabbitMQ's codes and texts. The caller checks permissions first (see `access`).
"""

from collections.abc import Collection, Container, Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from recado.amqp.errors import (
    AccessRefusedError,
    NotFoundError,
    PreconditionFailedError,
    ResourceLockedError,
)
from recado.amqp.values import FieldTable

from .arguments import (
    QueueSettings,
    QueueType,
    describe_entity,
    parse_exchange_arguments,
)
from .background_work import BackgroundWork
from .binding import Binding, Destination
from .deduplication import create_window
from .delay import DELAYED_EXCHANGE_TYPE, check_delayed_type
from .equivalence import check_exchange_equivalent, check_queue_equivalent
from .exchange import (
    EXCHANGE_TYPES,
    PREDECLARED_EXCHANGES,
    DelayedQueueFactory,
    Exchange,
    check_exchange_type,
)
from .limits import VhostLimits
from .memory_reclaimer import MemoryReclaimer
from .message_observer import Observers
from .message_sizes import MessageSizes
from .observer import IGNORE_CHANGES, Change, ChangeObserver
from .policy import Policies
from .steps import TURN_UNITS_MAX, Steps
from .store import MessageStore

Q = TypeVar("Q", bound=Destination)
T = TypeVar("T")

_AMQ_PREFIX: Final = "amq."
_UNITS_PER_ENTITY: Final = 2
_UNITS_PER_RECORD: Final = 4  # to record the removal of a durable binding


class VhostSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a vhost, set by an operator."""

    default_queue_type: QueueType | None = None
    """The type of queues that are declared without `x-queue-type`; None: classic."""
    limits: VhostLimits = VhostLimits()
    description: str = ""
    tags: tuple[str, ...] = ()


class Vhost(Generic[Q]):
    def __init__(
        self,
        name: str,
        store: MessageStore | None = None,
        background: BackgroundWork | None = None,
        reclaimer: MemoryReclaimer | None = None,
        message_sizes: MessageSizes | None = None,
    ) -> None:
        self.name = name
        self.settings = VhostSettings()
        self.store = store or MessageStore()
        self.observer: ChangeObserver = IGNORE_CHANGES
        self.message_observers: Observers = ()
        self.background = BackgroundWork() if background is None else background
        self.reclaimer = reclaimer or MemoryReclaimer()
        self.message_sizes = message_sizes or MessageSizes()  # of messages published by clients
        self.epoch = 0
        self.binding_count = 0
        self.consumer_count = 0  # without consumers of direct replies; `Broker.check` asserts it
        self.policies = Policies()
        self.delayed_queues: DelayedQueueFactory[Q] | None = None  # None: messages are not delayed
        self.queues: dict[str, Q] = {}
        self.exchanges: dict[str, Exchange[Q]] = {
            exchange: Exchange(exchange, settings)
            for exchange, settings in PREDECLARED_EXCHANGES.items()
        }
        self.default_exchange = self.exchanges[""]
        self._bindings_by_destination: dict[
            Q | Exchange[Q], dict[Binding[Q | Exchange[Q]], None]
        ] = {}
        # Deleted, with bindings still to be removed; their names cannot be declared meanwhile.
        self._deleting_exchanges: dict[str, Exchange[Q]] = {}
        self._deleting_queues: dict[str, Q] = {}
        self.reserved: set[tuple[str, str]] = set()
        """The entities ("queue" or "exchange", name) of an import that is not finished."""
        # The queues and bindings that this import has still to add. They count for the limits.
        self.pending_queue_count = self.pending_binding_count = 0

    # ── exchanges ───────────────────────────────────────────────────────────────────────────────

    def find_exchange(self, name: str) -> Exchange[Q]:
        try:
            return self.exchanges[name]
        except KeyError:
            raise NotFoundError(f"no {self._describe_exchange(name)}") from None

    def find_publishable_exchange(self, name: str) -> Exchange[Q]:
        exchange = self.find_exchange(name)
        if exchange.settings.internal:
            raise AccessRefusedError(f"cannot publish to internal {self._describe_exchange(name)}")
        return exchange

    def require_exchange(self, name: str) -> Exchange[Q]:
        """Return the exchange of a passive declaration, or raise `NotFoundError`."""
        _reject_default_exchange(name)
        return self.find_exchange(name)

    def declare_exchange(
        self,
        name: str,
        exchange_type: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable | None = None,
    ) -> Exchange[Q]:
        """Return the exchange with this name; create it if there is none.

        Raises `PreconditionFailedError` if it exists with other settings.
        """
        check_exchange_type(exchange_type)
        if exchange_type == DELAYED_EXCHANGE_TYPE:
            check_delayed_type(arguments or {}, EXCHANGE_TYPES)
        _reject_default_exchange(name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            _reject_amq_name("exchange", name)
        settings = parse_exchange_arguments(
            name,
            self.name,
            exchange_type=exchange_type,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments or {},
        )
        if exchange is None:
            while self.is_deleting("exchange", name):
                self.background.advance()
            exchange = self.exchanges[name] = Exchange(name, settings)
            exchange.settings = self.policies.effective_exchange_settings(name, settings)
            exchange.deduplication_window = create_window(
                settings.deduplication, self.store, self.name, exchange, persist=durable
            )
            self.epoch += 1
            if exchange_type == DELAYED_EXCHANGE_TYPE and self.delayed_queues is not None:
                exchange.delayed_queue = self.delayed_queues.create(exchange)
            if durable:
                self.store.exchange_declared(self.name, exchange)
            self.observer.exchange_changed(Change.CREATED, self.name, exchange)
        else:
            check_exchange_equivalent(
                self._describe_exchange(name), exchange.declared_settings, settings
            )
        return exchange

    def apply_policies(self) -> Steps[None]:
        """Recompute the settings of all exchanges after policies changed."""
        for exchange in list(self.exchanges.values()):
            if exchange is not self.default_exchange:
                settings = self.policies.effective_exchange_settings(
                    exchange.name, exchange.declared_settings
                )
                if settings != exchange.settings:
                    exchange.settings = settings
                    self.observer.exchange_changed(Change.CHANGED, self.name, exchange)
            yield 1
        self.epoch += 1

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings; do nothing if there is none.

        Many bindings are removed in the background; they match no message from now on.
        """
        _reject_default_exchange(name)
        if name.startswith(_AMQ_PREFIX):
            raise AccessRefusedError(
                f"deletion of system {self._describe_exchange(name)} not allowed"
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and not all(
            binding.destination.deleted for binding in exchange.bindings.values()
        ):
            raise PreconditionFailedError(f"{self._describe_exchange(name)} in use")
        self._start_deletion(exchange)

    # ── queues ──────────────────────────────────────────────────────────────────────────────────

    def find_queue(self, name: str) -> Q:
        try:
            return self.queues[name]
        except KeyError:
            raise NotFoundError(f"no {self._describe_queue(name)}") from None

    def find_accessible_queue(self, connection: object, name: str) -> Q:
        """Return the queue. Raises `ResourceLockedError` if it is exclusive to another connection."""
        queue = self.find_queue(name)
        if queue.owner is not None and queue.owner is not connection:
            raise self._locked_error(name)
        return queue

    def find_equivalent_queue(
        self, name: str, settings: QueueSettings, connection: object
    ) -> Q | None:
        """Return the queue that a declaration names, or None if it has to be created.

        Raises `PreconditionFailedError` if it exists with other settings, and `ResourceLockedError` if it
        is exclusive to another connection or the declaration differs in that.
        """
        _reject_amq_name("queue", name)
        queue = self.queues.get(name)
        if queue is None:
            return None
        if queue.owner is not (connection if settings.exclusive else None):
            raise self._locked_error(name)
        check_queue_equivalent(self._describe_queue(name), queue.declared_settings, settings)
        return queue

    def add_queue(self, queue: Q) -> None:
        while self.is_deleting("queue", queue.name):
            self.background.advance()
        self.queues[queue.name] = queue
        self.epoch += 1

    def remove_queue(self, queue: Q) -> None:
        """Remove a queue with its bindings.

        Auto-delete exchanges that lose their last binding are deleted too. Many bindings are removed in the
        background; they match no message from now on.
        """
        self._start_deletion(queue)

    # ── deletion ────────────────────────────────────────────────────────────────────────────────

    def is_deleting(self, entity: str, name: str) -> bool:
        """Whether a queue or an exchange was deleted and some of its bindings still exist."""
        return name in (self._deleting_exchanges if entity == "exchange" else self._deleting_queues)

    def must_wait_to_declare(self, entity: str, name: str) -> bool:
        """Whether a declaration has to wait: for a deletion, or for an import that may declare the same entity."""
        existing: Container[str] = self.exchanges if entity == "exchange" else self.queues
        return self.is_deleting(entity, name) or (
            (entity, name) in self.reserved and name not in existing
        )

    def wait_until_declarable(self, entity: str, name: str) -> Steps[None]:
        """Wait turn by turn until an entity can be declared."""
        while self.must_wait_to_declare(entity, name):
            yield TURN_UNITS_MAX

    def wait_until_released(self, entity: str, name: str) -> Steps[None]:
        """Wait turn by turn until a name is not reserved any more."""
        while (entity, name) in self.reserved:
            yield TURN_UNITS_MAX

    def release_reserved(self) -> Steps[None]:
        """End the reservation of all names; delete the auto-delete exchanges that lost their last binding."""
        self.pending_queue_count = self.pending_binding_count = 0
        while self.reserved:
            entity, name = self.reserved.pop()
            exchange = self.exchanges.get(name) if entity == "exchange" else None
            if exchange is not None and not exchange.is_new and self._is_auto_deletable(exchange):
                self._start_deletion(exchange)
            yield 1

    def _start_deletion(self, entity: Q | Exchange[Q]) -> None:
        self._unregister(entity)
        self.background.start(self._delete_bindings(entity))

    def _unregister(self, entity: Q | Exchange[Q]) -> None:
        """Make an entity unreachable by name and for messages."""
        if isinstance(entity, Exchange):
            entity.deleted = True
            del self.exchanges[entity.name]
            self._deleting_exchanges[entity.name] = entity
            if entity.settings.durable:
                self.store.exchange_deleted(self.name, entity)
            if entity.delayed_queue is not None and self.delayed_queues is not None:
                self.delayed_queues.delete(entity.delayed_queue)
            self.observer.exchange_changed(Change.DELETED, self.name, entity)
        else:
            del self.queues[entity.name]
            self._deleting_queues[entity.name] = entity
        self.epoch += 1

    def _delete_bindings(self, entity: Q | Exchange[Q]) -> Steps[None]:
        """Remove the bindings of a deleted entity.

        Auto-delete exchanges that lose their last binding are deleted too: iteratively, because a chain of
        them can be long.
        """
        pending = [entity]
        for deleted in pending:
            if isinstance(deleted, Exchange):
                for binding in _pop_all(deleted.bindings.values()):
                    if self._is_bound(binding):
                        yield self._remove_binding(deleted, binding)
            for binding in _pop_all(self.bindings_to(deleted)):
                if not self._is_bound(binding):  # its source was deleted as well
                    continue
                name = binding.source
                source = self.exchanges.get(name) or self._deleting_exchanges[name]
                yield self._remove_binding(source, binding)
                if self._is_auto_deletable(source) and not source.deleted:
                    self._unregister(source)
                    pending.append(source)
            if isinstance(deleted, Exchange):
                del self._deleting_exchanges[deleted.name]
            else:
                del self._deleting_queues[deleted.name]
            yield _UNITS_PER_ENTITY

    # ── bindings ────────────────────────────────────────────────────────────────────────────────

    def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: FieldTable | None = None,
        *,
        connection: object = None,
    ) -> None:
        source = self.require_exchange(exchange)
        self.bind(
            source, self.find_accessible_queue(connection, queue), routing_key, arguments or {}
        )

    def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: FieldTable | None = None,
        *,
        connection: object = None,
    ) -> None:
        """Remove a binding; do nothing if the binding, the exchange or the queue does not exist."""
        _reject_default_exchange(exchange)
        if exchange in self.exchanges and queue in self.queues:
            destination = self.find_accessible_queue(connection, queue)
            self._unbind(self.exchanges[exchange], destination, routing_key, arguments or {})

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: FieldTable | None = None
    ) -> None:
        _reject_default_exchange(destination)
        exchange = self.require_exchange(source)
        self.bind(exchange, self.find_exchange(destination), routing_key, arguments or {})

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: FieldTable | None = None
    ) -> None:
        """Remove a binding; do nothing if it does not exist."""
        for name in (destination, source):
            _reject_default_exchange(name)
        if source in self.exchanges and destination in self.exchanges:
            target = self.exchanges[destination]
            self._unbind(self.exchanges[source], target, routing_key, arguments or {})

    def bindings_to(self, destination: Q | Exchange[Q]) -> Collection[Binding[Q | Exchange[Q]]]:
        return self._bindings_by_destination.get(destination, ())

    def bind(
        self, source: Exchange[Q], destination: Q | Exchange[Q], key: str, arguments: FieldTable
    ) -> None:
        """Add a binding; do nothing if it exists.

        Raises `PreconditionFailedError` if the vhost has reached its binding limit.
        """
        if source.find_binding(destination, key, arguments) is None:
            self.check_binding_limit(source.name, destination.name)
            self.add_binding(source, destination, key, arguments)

    def check_binding_limit(self, source: str, destination: str) -> None:
        """Raise `PreconditionFailedError` if the vhost has reached its binding limit."""
        limit = self.settings.limits.max_bindings
        if limit is not None and self.binding_count + self.pending_binding_count >= limit:
            raise PreconditionFailedError(
                f"cannot bind '{destination}' to exchange '{source}': binding limit in vhost"
                f" '{self.name}' ({limit}) is reached"
            )

    def add_binding(
        self, source: Exchange[Q], destination: Q | Exchange[Q], key: str, arguments: FieldTable
    ) -> None:
        """Add a binding whatever the limit is."""
        binding = source.bind(destination, key, arguments)
        if binding is not None:
            self._bindings_by_destination.setdefault(destination, {})[binding] = None
            self.binding_count += 1
            self.epoch += 1
            if _is_stored(source, destination):
                self.store.binding_added(self.name, binding)
            self.observer.binding_changed(Change.CREATED, self.name, binding)

    def record_bindings(self, queue: Q) -> Steps[None]:
        """Store the bindings of a queue that becomes durable; new ones are stored already."""
        for binding in list(self.bindings_to(queue)):
            source = self.exchanges.get(binding.source)
            if source is not None and source.settings.durable and self._is_bound(binding):
                self.store.binding_added(self.name, binding)
            yield _UNITS_PER_RECORD

    def forget_bindings(self, queue: Q) -> Steps[None]:
        """Remove the bindings of a queue that has become transient from the store; new ones are not stored."""
        for binding in list(self.bindings_to(queue)):
            source = self.exchanges.get(binding.source)
            if queue.deleted:  # another one may have its name
                return
            if source is not None and source.settings.durable and self._is_bound(binding):
                self.store.binding_removed(self.name, binding)
            yield _UNITS_PER_RECORD

    def _unbind(
        self, source: Exchange[Q], destination: Q | Exchange[Q], key: str, arguments: FieldTable
    ) -> None:
        binding = source.find_binding(destination, key, arguments)
        if binding is not None:
            self._remove_binding(source, binding)
            self.epoch += 1
            if self._is_auto_deletable(source):
                self._start_deletion(source)

    def _is_auto_deletable(self, exchange: Exchange[Q]) -> bool:
        return (
            exchange.settings.auto_delete
            and not exchange.bindings
            and ("exchange", exchange.name) not in self.reserved
        )

    def _is_bound(self, binding: Binding[Q | Exchange[Q]]) -> bool:
        return binding in self._bindings_by_destination.get(binding.destination, ())

    def _remove_binding(self, source: Exchange[Q], binding: Binding[Q | Exchange[Q]]) -> int:
        """Remove a binding; return the cost."""
        inbound = self._bindings_by_destination[binding.destination]
        del inbound[binding]
        if not inbound:
            del self._bindings_by_destination[binding.destination]
        self.binding_count -= 1
        cost = source.unbind(binding)
        self.observer.binding_changed(Change.DELETED, self.name, binding)
        end = binding.destination
        if not source.settings.durable or not (
            end.settings.durable if isinstance(end, Exchange) else end.has_stored_bindings
        ):
            return cost + 1
        self.store.binding_removed(self.name, binding)
        return cost + _UNITS_PER_RECORD

    def check_consumer_limit(self, queue: str) -> None:
        """Raise `PreconditionFailedError` if the vhost has reached its consumer limit."""
        limit = self.settings.limits.max_consumers
        if limit is not None and self.consumer_count >= limit:
            raise PreconditionFailedError(
                f"cannot consume from queue '{queue}': consumer limit in vhost '{self.name}' ({limit})"
                " is reached"
            )

    def alternate_exchanges(self, exchange: Exchange[Q]) -> Sequence[Exchange[Q]]:
        """Return the exchange for messages that match no binding, if there is one."""
        name = exchange.settings.alternate_exchange
        if name is None or name not in self.exchanges:
            return ()
        return (self.exchanges[name],)

    # ── descriptions and errors ─────────────────────────────────────────────────────────────────

    def _describe_exchange(self, name: str) -> str:
        return describe_entity("exchange", name, self.name)

    def _describe_queue(self, name: str) -> str:
        return describe_entity("queue", name, self.name)

    def _locked_error(self, queue: str) -> ResourceLockedError:
        return ResourceLockedError(
            f"cannot obtain exclusive access to locked {self._describe_queue(queue)}. It could be originally"
            " declared on another connection or the exclusive property value does not match that of"
            " the original declaration."
        )

    # ── invariants ──────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Assert VH1, VH2 and VH4; VH3 is a property of two states."""
        sources = {*self.exchanges.values(), *self._deleting_exchanges.values()}
        entities = {*sources, *self.queues.values(), *self._deleting_queues.values()}
        outbound = [binding for source in sources for binding in source.bindings.values()]
        inbound = [
            binding for bindings in self._bindings_by_destination.values() for binding in bindings
        ]
        assert len(outbound) == len(inbound), "VH1"
        assert self.binding_count == len(inbound), "VH4"
        assert set(outbound) == set(inbound), "VH1"
        assert self._bindings_by_destination.keys() <= entities, "VH1"
        for exchange in self.exchanges.values():
            exchange.check()
            assert exchange.is_new or not self._is_auto_deletable(exchange), "VH2"


def _pop_all(items: Collection[T]) -> Iterator[T]:
    """Iterate over a copy of the items. Each is freed when the caller is done with it, not all at the end."""
    left = list(items)
    left.reverse()
    while left:
        yield left.pop()


def _is_stored(source: Exchange[Q], destination: Q | Exchange[Q]) -> bool:
    """Whether a new binding survives a restart, which it does if both its ends do."""
    if isinstance(destination, Exchange):
        return source.settings.durable and destination.settings.durable
    return source.settings.durable and destination.stores_bindings


def _reject_default_exchange(name: str) -> None:
    if not name:
        raise AccessRefusedError("operation not permitted on the default exchange")


def _reject_amq_name(entity: str, name: str) -> None:
    if name.startswith(_AMQ_PREFIX):
        raise AccessRefusedError(f"{entity} name '{name}' contains reserved prefix 'amq.*'")
