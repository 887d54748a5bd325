"""A virtual host: its exchanges and queues, and what is bound to what.

V1  Every binding leads from an exchange to an exchange or a queue, which are there or leaving, and is
    known at either end.
V2  An auto-delete exchange that had bindings has one still.
V3  `epoch` grows with every change that may give some message another way, so that a route may be
    kept for as long as the epoch lasts.

Things are found or refused here with RabbitMQ's codes and texts. Whether the user may ask for them
is settled before (see `access`), and what becomes of messages in a queue is the queue's affair.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from recado.amqp.errors import (
    AccessRefused,
    CommandInvalid,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from recado.amqp.values import Table

from .arguments import (
    QueueSettings,
    QueueType,
    describe,
    parse_exchange_arguments,
)
from .binding import Binding, Destination
from .cleanup import Cleanup
from .deduplication import window_of
from .delay import DELAYED, check_delayed_type
from .disposal import Disposal
from .equivalence import check_exchange_equivalent, check_queue_equivalent
from .exchange import KINDS, PREDECLARED, Exchange, Holder
from .keeper import Keeper
from .limits import VhostLimits
from .policy import Policies
from .steps import TURN_UNITS, Steps

Q = TypeVar("Q", bound=Destination)
T = TypeVar("T")

_RESERVED_PREFIX: Final = "amq."
_UNITS_PER_THING: Final = 2
_UNITS_PER_RECORD: Final = 4  # that a durable binding is gone


class VhostSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator sets for a vhost."""

    default_queue_type: QueueType | None = None
    """The type of queues that are declared without `x-queue-type`; None is classic."""
    limits: VhostLimits = VhostLimits()


class Vhost(Generic[Q]):
    def __init__(
        self,
        name: str,
        keeper: Keeper | None = None,
        cleanup: Cleanup | None = None,
        disposal: Disposal | None = None,
    ) -> None:
        self.name = name
        self.settings = VhostSettings()
        self.keeper = keeper or Keeper()
        self.cleanup = Cleanup() if cleanup is None else cleanup
        self.disposal = disposal or Disposal()
        self.epoch = 0
        self.policies = Policies()
        self.holdings: Holder[Q] | None = None  # without them nothing is delayed
        self.queues: dict[str, Q] = {}
        self.exchanges: dict[str, Exchange[Q]] = {
            exchange: Exchange(exchange, settings) for exchange, settings in PREDECLARED.items()
        }
        self.default = self.exchanges[""]
        self._inbound: dict[Q | Exchange[Q], dict[Binding[Q | Exchange[Q]], None]] = {}
        # Deleted, with bindings that are not removed yet. Nothing else gets such a name meanwhile.
        self._leaving_exchanges: dict[str, Exchange[Q]] = {}
        self._leaving_queues: dict[str, Q] = {}

    # ── exchanges ───────────────────────────────────────────────────────────────────────────────

    def find_exchange(self, name: str) -> Exchange[Q]:
        try:
            return self.exchanges[name]
        except KeyError:
            raise NotFound(f"no {self._exchange(name)}") from None

    def find_exchange_to_publish(self, name: str) -> Exchange[Q]:
        exchange = self.find_exchange(name)
        if exchange.settings.internal:
            raise AccessRefused(f"cannot publish to internal {self._exchange(name)}")
        return exchange

    def expect_exchange(self, name: str) -> Exchange[Q]:
        """The exchange of a passive declaration."""
        _refuse_default_exchange(name)
        return self.find_exchange(name)

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> Exchange[Q]:
        """The exchange of that name, made if need be, and refused if it is not as wanted."""
        if kind == DELAYED:
            check_delayed_type(arguments or {}, KINDS)
        elif kind not in KINDS:
            raise CommandInvalid(f"unknown exchange type '{kind}'")
        _refuse_default_exchange(name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            _refuse_reserved("exchange", name)
        wanted = parse_exchange_arguments(
            name,
            self.name,
            kind=kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments or {},
        )
        if exchange is None:
            while self.is_leaving("exchange", name):
                self.cleanup.go_on()
            exchange = self.exchanges[name] = Exchange(name, wanted)
            exchange.settings = self.policies.for_exchange(name, wanted)
            exchange.window = window_of(
                wanted.window, self.keeper, self.name, exchange, lasting=durable
            )
            self.epoch += 1
            if kind == DELAYED and self.holdings is not None:
                exchange.holding = self.holdings.open(exchange)
            if durable:
                self.keeper.exchange_declared(self.name, exchange)
        else:
            check_exchange_equivalent(self._exchange(name), exchange.declared, wanted)
        return exchange

    def apply_policies(self) -> Steps[None]:
        """Policies came or went: exchanges may have others as alternates now."""
        for exchange in list(self.exchanges.values()):
            if exchange is not self.default:
                exchange.settings = self.policies.for_exchange(exchange.name, exchange.declared)
            yield 1
        self.epoch += 1

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Deletes it with all its bindings; one that is not there is gone already.

        If there are many bindings, they are removed later; messages take none of them from now on.
        """
        _refuse_default_exchange(name)
        if name.startswith(_RESERVED_PREFIX):
            raise AccessRefused(f"deletion of system {self._exchange(name)} not allowed")
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and not all(
            binding.destination.deleted for binding in exchange.bindings.values()
        ):
            raise PreconditionFailed(f"{self._exchange(name)} in use")
        self._delete(exchange)

    # ── queues ──────────────────────────────────────────────────────────────────────────────────

    def find_queue(self, name: str) -> Q:
        try:
            return self.queues[name]
        except KeyError:
            raise NotFound(f"no {self._queue(name)}") from None

    def find_queue_for(self, connection: object, name: str) -> Q:
        """The queue, unless it is exclusive to another connection."""
        queue = self.find_queue(name)
        if queue.owner is not None and queue.owner is not connection:
            raise self._locked(name)
        return queue

    def find_declared(self, name: str, wanted: QueueSettings, connection: object) -> Q | None:
        """The queue that a declaration asks for if there is one, and None if it is to be made.

        A declaration that differs in being exclusive is taken for one of somebody else's queue.
        """
        _refuse_reserved("queue", name)
        queue = self.queues.get(name)
        if queue is None:
            return None
        if queue.owner is not (connection if wanted.exclusive else None):
            raise self._locked(name)
        check_queue_equivalent(self._queue(name), queue.declared, wanted)
        return queue

    def add_queue(self, queue: Q) -> None:
        while self.is_leaving("queue", queue.name):
            self.cleanup.go_on()
        self.queues[queue.name] = queue
        self.epoch += 1

    def remove_queue(self, queue: Q) -> None:
        """Takes the queue away, its bindings, and auto-delete exchanges that live by them.

        If there are many bindings, they are removed later; messages take none of them from now on.
        """
        self._delete(queue)

    # ── what is leaving ─────────────────────────────────────────────────────────────────────────

    def is_leaving(self, kind: str, name: str) -> bool:
        """Whether a queue or an exchange was deleted, and some of its bindings are still to be removed."""
        return name in (self._leaving_exchanges if kind == "exchange" else self._leaving_queues)

    def until_gone(self, kind: str, name: str) -> Steps[None]:
        """Wait for the name of a thing that is leaving, turn by turn."""
        while self.is_leaving(kind, name):
            yield TURN_UNITS

    def _delete(self, thing: Q | Exchange[Q]) -> None:
        self._unlist(thing)
        self.cleanup.begin(self._take_apart(thing))

    def _unlist(self, thing: Q | Exchange[Q]) -> None:
        """From now on it is not found, and no message gets there."""
        if isinstance(thing, Exchange):
            thing.deleted = True
            del self.exchanges[thing.name]
            self._leaving_exchanges[thing.name] = thing
            if thing.settings.durable:
                self.keeper.exchange_deleted(self.name, thing)
            if thing.holding is not None and self.holdings is not None:
                self.holdings.close(thing.holding)
        else:
            del self.queues[thing.name]
            self._leaving_queues[thing.name] = thing
        self.epoch += 1

    def _take_apart(self, thing: Q | Exchange[Q]) -> Steps[None]:
        """Remove the bindings of a thing that is leaving, and the exchanges that lived by it.

        One after the other, not by recursion: a chain of auto-delete exchanges may be long.
        """
        going = [thing]
        for gone in going:
            if isinstance(gone, Exchange):
                for binding in _emptying(gone.bindings.values()):
                    if self._is_bound(binding):
                        yield self._remove_binding(gone, binding)
            for binding in _emptying(self.bindings_to(gone)):
                if not self._is_bound(binding):  # its source was deleted as well
                    continue
                name = binding.source
                source = self.exchanges.get(name) or self._leaving_exchanges[name]
                yield self._remove_binding(source, binding)
                if _is_abandoned(source) and not source.deleted:
                    self._unlist(source)
                    going.append(source)
            if isinstance(gone, Exchange):
                del self._leaving_exchanges[gone.name]
            else:
                del self._leaving_queues[gone.name]
            yield _UNITS_PER_THING

    # ── bindings ────────────────────────────────────────────────────────────────────────────────

    def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: Table | None = None,
        *,
        connection: object = None,
    ) -> None:
        source = self.expect_exchange(exchange)
        self._bind(source, self.find_queue_for(connection, queue), routing_key, arguments or {})

    def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: Table | None = None,
        *,
        connection: object = None,
    ) -> None:
        """What is not bound, or not there at all, is unbound already."""
        _refuse_default_exchange(exchange)
        if exchange in self.exchanges and queue in self.queues:
            destination = self.find_queue_for(connection, queue)
            self._unbind(self.exchanges[exchange], destination, routing_key, arguments or {})

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: Table | None = None
    ) -> None:
        _refuse_default_exchange(destination)
        exchange = self.expect_exchange(source)
        self._bind(exchange, self.find_exchange(destination), routing_key, arguments or {})

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: Table | None = None
    ) -> None:
        """As with queues, what is not bound is unbound already."""
        for name in (destination, source):
            _refuse_default_exchange(name)
        if source in self.exchanges and destination in self.exchanges:
            target = self.exchanges[destination]
            self._unbind(self.exchanges[source], target, routing_key, arguments or {})

    def bindings_to(self, destination: Q | Exchange[Q]) -> Collection[Binding[Q | Exchange[Q]]]:
        return self._inbound.get(destination, ())

    def _bind(
        self, source: Exchange[Q], destination: Q | Exchange[Q], key: str, arguments: Table
    ) -> None:
        binding = source.bind(destination, key, arguments)
        if binding is not None:
            self._inbound.setdefault(destination, {})[binding] = None
            self.epoch += 1
            if _lasts(source, binding):
                self.keeper.bound(self.name, binding)

    def _unbind(
        self, source: Exchange[Q], destination: Q | Exchange[Q], key: str, arguments: Table
    ) -> None:
        binding = source.find(destination, key, arguments)
        if binding is not None:
            self._remove_binding(source, binding)
            self.epoch += 1
            if _is_abandoned(source):
                self._delete(source)

    def _is_bound(self, binding: Binding[Q | Exchange[Q]]) -> bool:
        return binding in self._inbound.get(binding.destination, ())

    def _remove_binding(self, source: Exchange[Q], binding: Binding[Q | Exchange[Q]]) -> int:
        """Return the cost."""
        inbound = self._inbound[binding.destination]
        del inbound[binding]
        if not inbound:
            del self._inbound[binding.destination]
        cost = source.unbind(binding)
        if not _lasts(source, binding):
            return cost + 1
        self.keeper.unbound(self.name, binding)
        return cost + _UNITS_PER_RECORD

    def alternate(self, exchange: Exchange[Q]) -> Sequence[Exchange[Q]]:
        """Where messages go that match no binding of an exchange."""
        name = exchange.settings.alternate_exchange
        if name is None or name not in self.exchanges:
            return ()
        return (self.exchanges[name],)

    # ── words ───────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, name: str) -> str:
        return describe("exchange", name, self.name)

    def _queue(self, name: str) -> str:
        return describe("queue", name, self.name)

    def _locked(self, queue: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self._queue(queue)}. It could be originally"
            " declared on another connection or the exclusive property value does not match that of"
            " the original declaration."
        )

    # ── invariants ──────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """V1 and V2; V3 takes two looks, so a test must compare."""
        sources = {*self.exchanges.values(), *self._leaving_exchanges.values()}
        things = {*sources, *self.queues.values(), *self._leaving_queues.values()}
        outbound = [binding for source in sources for binding in source.bindings.values()]
        inbound = [binding for bindings in self._inbound.values() for binding in bindings]
        assert len(outbound) == len(inbound), "V1"
        assert set(outbound) == set(inbound), "V1"
        assert self._inbound.keys() <= things, "V1"
        for exchange in self.exchanges.values():
            exchange.check()
            assert exchange.is_new or not _is_abandoned(exchange), "V2"


def _emptying(things: Collection[T]) -> Iterator[T]:
    """The things as they are now. Each is freed when the caller is done with it, not all in the end."""
    left = list(things)
    left.reverse()
    while left:
        yield left.pop()


def _lasts(source: Exchange[Q], binding: Binding[Q | Exchange[Q]]) -> bool:
    """A binding outlasts a restart if both its ends do."""
    end = binding.destination
    lasting = end.settings.durable if isinstance(end, Exchange) else end.lasting
    return source.settings.durable and lasting


def _is_abandoned(exchange: Exchange[Q]) -> bool:
    return exchange.settings.auto_delete and not exchange.bindings


def _refuse_default_exchange(name: str) -> None:
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def _refuse_reserved(kind: str, name: str) -> None:
    if name.startswith(_RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
