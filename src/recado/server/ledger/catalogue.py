"""What is declared and remembered: the records that would make it so again, and how a broker is told of them.

The messages that a delayed exchange holds are in a queue of its own, which comes and goes with the exchange.
"""

from collections.abc import Callable, Iterator
from typing import Any

from recado.amqp.errors import NotFound
from recado.amqp.values import Table, Value
from recado.broker.arguments import parse_queue_arguments
from recado.broker.binding import Binding
from recado.broker.broker import Broker
from recado.broker.exchange import Exchange
from recado.broker.holding import PREFIX
from recado.broker.queue import Queue
from recado.journal.record import Unknown

from . import records

Name = tuple[str, str]
"""Vhost and name."""


class Catalogue:
    """Each thing by its name, oldest first, for the order of bindings shows."""

    __slots__ = ("_bindings", "exchanges", "facts", "queues")

    def __init__(self) -> None:
        self.exchanges: dict[Name, bytes] = {}
        self.queues: dict[int, bytes] = {}
        self._bindings: dict[bytes, bytes] = {}  # by all of the record but its kind
        self.facts: dict[tuple[str, str, str], bytes] = {}

    # ── changes: each gives the record of it ──────────────────────────────────────────────────────────

    def add_exchange(self, vhost: str, exchange: Exchange[Any]) -> bytes:
        declared = exchange.declared
        table: Table = {
            "vhost": vhost,
            "name": exchange.name,
            "kind": declared.kind,
            "auto_delete": declared.auto_delete,
            "internal": declared.internal,
        }
        record = records.encode_tables(records.EXCHANGE, table, declared.arguments)
        self.exchanges[vhost, exchange.name] = record
        return record

    def remove_exchange(self, vhost: str, exchange: Exchange[Any]) -> bytes:
        del self.exchanges[vhost, exchange.name]
        return records.encode_tables(records.EXCHANGE_GONE, {"vhost": vhost, "name": exchange.name})

    def add_queue(self, number: int, queue: Queue) -> bytes:
        table: Table = {
            "vhost": queue.vhost.name,
            "name": queue.name,
            "number": number,
            "auto_delete": queue.declared.auto_delete,
        }
        record = records.encode_tables(records.QUEUE, table, queue.declared.arguments)
        self.queues[number] = record
        return record

    def remove_queue(self, number: int) -> bytes:
        del self.queues[number]
        return records.encode_tables(records.QUEUE_GONE, {"number": number})

    def add_binding(self, vhost: str, binding: Binding[Any]) -> bytes:
        record = records.encode_tables(records.BINDING, *_binding_tables(vhost, binding))
        self._bindings[record[1:]] = record
        return record

    def remove_binding(self, vhost: str, binding: Binding[Any]) -> bytes:
        record = records.encode_tables(records.BINDING_GONE, *_binding_tables(vhost, binding))
        del self._bindings[record[1:]]
        return record

    def remember(self, kind: str, vhost: str, name: str, value: bytes | None) -> bytes:
        if value is None:
            del self.facts[kind, vhost, name]
        else:
            self.facts[kind, vhost, name] = value
        return records.encode_fact(kind, vhost, name, value)

    # ── there and back ────────────────────────────────────────────────────────────────────────────────

    def records(self) -> Iterator[bytes]:
        """All that there is."""
        for key, value in self.facts.items():
            yield records.encode_fact(*key, value)
        yield from self.exchanges.values()
        yield from self.queues.values()
        yield from self._bindings.values()

    def apply(self, record: bytes) -> Name | int | None:
        """A record from the journal; gives the exchange or the number of the queue that is gone by it."""
        match record[0]:
            case records.EXCHANGE:
                self.exchanges[_name(record)] = record
            case records.EXCHANGE_GONE:
                name = _name(record)
                self.exchanges.pop(name, None)
                return name
            case records.QUEUE:
                self.queues[_number(record)] = record
            case records.QUEUE_GONE:
                number = _number(record)
                self.queues.pop(number, None)
                return number
            case records.BINDING:
                self._bindings[record[1:]] = record
            case records.BINDING_GONE:
                self._bindings.pop(record[1:], None)
            case records.FACT:
                key, value = records.decode_fact(record)
                self.facts[key] = value
            case records.FACT_GONE:
                self.facts.pop(records.decode_fact(record)[0], None)
            case kind:
                raise Unknown(f"the journal has a record of kind {kind}, which is not known here")
        return None

    def numbers(self) -> dict[Name, int]:
        return {_name(record): number for number, record in self.queues.items()}

    def declare(self, broker: Broker, now: int) -> list[bytes]:
        """Tell a new broker of everything.

        Return records of the end of bindings that a crash left behind while one of their ends was deleted.
        """
        for vhost, _ in (*self.exchanges, *self.numbers()):
            if vhost not in broker.vhosts:  # as one is that is no longer in the configuration
                broker.add_vhost(vhost)
        broker.recall(self.facts, now)
        for record in self.exchanges.values():
            _declare_exchange(broker, record)
        for record in self.queues.values():
            _declare_queue(broker, record, now)
        left = [record for record in self._bindings.values() if not _bind(broker, record)]
        for record in left:
            del self._bindings[record[1:]]
        return [bytes((records.BINDING_GONE,)) + record[1:] for record in left]


def _declare_exchange(broker: Broker, record: bytes) -> None:
    table, arguments = records.decode_tables(record)
    broker.vhosts[_text(table, "vhost")].declare_exchange(
        _text(table, "name"),
        _text(table, "kind"),
        durable=True,
        auto_delete=bool(table["auto_delete"]),
        internal=bool(table["internal"]),
        arguments=arguments,
    )


def _declare_queue(broker: Broker, record: bytes, now: int) -> None:
    table, arguments = records.decode_tables(record)
    vhost, name = broker.vhosts[_text(table, "vhost")], _text(table, "name")
    if name.startswith(PREFIX):
        return
    settings = parse_queue_arguments(
        name,
        vhost.name,
        durable=True,
        exclusive=False,
        auto_delete=bool(table["auto_delete"]),
        arguments=arguments,
    )
    broker.create_queue(vhost, name, settings, None, now)


def _bind(broker: Broker, record: bytes) -> bool:
    """Return whether both ends are there."""
    table, arguments = records.decode_tables(record)
    vhost = broker.vhosts.get(_text(table, "vhost"))
    if vhost is None:
        return False
    bind: Callable[[str, str, str, Table], None] = vhost.bind_queue
    if table["to_exchange"]:
        bind = vhost.bind_exchange
    try:
        bind(_text(table, "destination"), _text(table, "source"), _text(table, "key"), arguments)
    except NotFound:
        return False
    return True


def _binding_tables(vhost: str, binding: Binding[Any]) -> tuple[Table, Table]:
    destination = binding.destination
    table: Table = {
        "vhost": vhost,
        "source": binding.source,
        "destination": destination.name,
        "to_exchange": isinstance(destination, Exchange),
        "key": binding.routing_key,
    }
    return table, binding.arguments


def _name(record: bytes) -> Name:
    table = records.decode_tables(record)[0]
    return _text(table, "vhost"), _text(table, "name")


def _text(table: Table, name: str) -> str:
    value: Value = table[name]
    assert isinstance(value, str)
    return value


def _number(record: bytes) -> int:
    value = records.decode_tables(record)[0]["number"]
    assert isinstance(value, int)
    return value
