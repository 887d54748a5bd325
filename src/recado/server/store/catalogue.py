"""The catalogue: declarations and metadata as records, and how they are restored to a broker.

The messages of a delayed exchange are in a queue of its own, which is declared and deleted with the exchange.
"""

from collections.abc import Iterator
from typing import Any

from recado.amqp.errors import NotFoundError
from recado.amqp.values import FieldTable, FieldValue
from recado.broker.arguments import parse_queue_arguments
from recado.broker.binding import Binding
from recado.broker.broker import Broker
from recado.broker.delayed_queue import DELAYED_QUEUE_PREFIX
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.journal.record import UnknownFormatError

from . import records

QualifiedName = tuple[str, str]
"""Vhost and name."""


class StoreCatalogue:
    """The encoded declarations by name, oldest first, because clients can observe the order of bindings."""

    __slots__ = ("_bindings", "exchanges", "metadata", "queues")

    def __init__(self) -> None:
        self.exchanges: dict[QualifiedName, bytes] = {}
        self.queues: dict[int, bytes] = {}
        self._bindings: dict[bytes, bytes] = {}  # by the record without its first byte, the kind
        self.metadata: dict[tuple[str, str, str], bytes] = {}

    # ── changes: each returns the record to append ────────────────────────────────────────────────────

    def add_exchange(self, vhost: str, exchange: Exchange[Any]) -> bytes:
        declared = exchange.declared_settings
        table: FieldTable = {
            "vhost": vhost,
            "name": exchange.name,
            "kind": declared.exchange_type,
            "auto_delete": declared.auto_delete,
            "internal": declared.internal,
        }
        record = records.encode_tables(records.EXCHANGE, table, declared.arguments)
        self.exchanges[vhost, exchange.name] = record
        return record

    def remove_exchange(self, vhost: str, exchange: Exchange[Any]) -> bytes:
        del self.exchanges[vhost, exchange.name]
        return records.encode_tables(
            records.EXCHANGE_DELETED, {"vhost": vhost, "name": exchange.name}
        )

    def add_queue(self, queue_id: int, queue: Queue) -> bytes:
        table: FieldTable = {
            "vhost": queue.vhost.name,
            "name": queue.name,
            "number": queue_id,
            "auto_delete": queue.declared_settings.auto_delete,
        }
        record = records.encode_tables(records.QUEUE, table, queue.declared_settings.arguments)
        self.queues[queue_id] = record
        return record

    def remove_queue(self, queue_id: int) -> bytes:
        del self.queues[queue_id]
        return records.encode_tables(records.QUEUE_DELETED, {"number": queue_id})

    def add_binding(self, vhost: str, binding: Binding[Any]) -> bytes | None:
        """Return None if the binding is known already."""
        record = records.encode_tables(records.BINDING, *_encode_binding(vhost, binding))
        if record[1:] in self._bindings:
            return None
        self._bindings[record[1:]] = record
        return record

    def remove_binding(self, vhost: str, binding: Binding[Any]) -> bytes | None:
        """Return None if the binding is not known."""
        record = records.encode_tables(records.BINDING_DELETED, *_encode_binding(vhost, binding))
        return record if self._bindings.pop(record[1:], None) is not None else None

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> bytes:
        if value is None:
            del self.metadata[kind, vhost, name]
        else:
            self.metadata[kind, vhost, name] = value
        return records.encode_metadata(kind, vhost, name, value)

    # ── writing and restoring ─────────────────────────────────────────────────────────────────────────

    def encode_all(self) -> Iterator[bytes]:
        """Yield the records of all declarations and metadata, for a checkpoint."""
        for key, value in self.metadata.items():
            yield records.encode_metadata(*key, value)
        yield from self.exchanges.values()
        yield from self.queues.values()
        yield from self._bindings.values()

    def apply(self, record: bytes) -> QualifiedName | int | None:
        """Apply a record of the journal; return the exchange or the queue id that it deletes, if any."""
        match record[0]:
            case records.EXCHANGE:
                self.exchanges[_decode_name(record)] = record
            case records.EXCHANGE_DELETED:
                name = _decode_name(record)
                self.exchanges.pop(name, None)
                return name
            case records.QUEUE:
                self.queues[_decode_queue_id(record)] = record
            case records.QUEUE_DELETED:
                queue_id = _decode_queue_id(record)
                self.queues.pop(queue_id, None)
                return queue_id
            case records.BINDING:
                self._bindings[record[1:]] = record
            case records.BINDING_DELETED:
                self._bindings.pop(record[1:], None)
            case records.METADATA:
                key, value = records.decode_metadata(record)
                self.metadata[key] = value
            case records.METADATA_DELETED:
                self.metadata.pop(records.decode_metadata(record)[0], None)
            case kind:
                raise UnknownFormatError(f"the journal has a record of unknown kind {kind}")
        return None

    def queue_ids(self) -> dict[QualifiedName, int]:
        return {_decode_name(record): queue_id for queue_id, record in self.queues.items()}

    def restore_to(self, broker: Broker, now: int) -> list[bytes]:
        """Declare everything in a new broker.

        Return the records that delete orphaned bindings: a crash left them when their queue or exchange was
        deleted.
        """
        for vhost, _ in (*self.exchanges, *self.queue_ids()):
            if vhost not in broker.vhosts:  # it was removed from the configuration
                broker.add_vhost(vhost)
        broker.restore_metadata(self.metadata, now)
        for record in self.exchanges.values():
            _declare_exchange(broker, record)
        for record in self.queues.values():
            _declare_queue(broker, record, now)
        orphans = [record for record in self._bindings.values() if not _bind(broker, record)]
        for record in orphans:
            del self._bindings[record[1:]]
        return [bytes((records.BINDING_DELETED,)) + record[1:] for record in orphans]


def _declare_exchange(broker: Broker, record: bytes) -> None:
    table, arguments = records.decode_tables(record)
    broker.vhosts[_get_text(table, "vhost")].declare_exchange(
        _get_text(table, "name"),
        _get_text(table, "kind"),
        durable=True,
        auto_delete=bool(table["auto_delete"]),
        internal=bool(table["internal"]),
        arguments=arguments,
    )


def _declare_queue(broker: Broker, record: bytes, now: int) -> None:
    table, arguments = records.decode_tables(record)
    vhost, name = broker.vhosts[_get_text(table, "vhost")], _get_text(table, "name")
    if name.startswith(DELAYED_QUEUE_PREFIX):
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
    """Restore a binding; return False if its source or destination does not exist."""
    table, arguments = records.decode_tables(record)
    vhost = broker.vhosts.get(_get_text(table, "vhost"))
    if vhost is None:
        return False
    find = vhost.find_exchange if table["to_exchange"] else vhost.find_queue
    try:
        source = vhost.find_exchange(_get_text(table, "source"))
        destination = find(_get_text(table, "destination"))
    except NotFoundError:
        return False
    vhost.add_binding(source, destination, _get_text(table, "key"), arguments)
    return True


def _encode_binding(vhost: str, binding: Binding[Any]) -> tuple[FieldTable, FieldTable]:
    destination = binding.destination
    table: FieldTable = {
        "vhost": vhost,
        "source": binding.source,
        "destination": destination.name,
        "to_exchange": isinstance(destination, Exchange),
        "key": binding.routing_key,
    }
    return table, binding.arguments


def _decode_name(record: bytes) -> QualifiedName:
    table = records.decode_tables(record)[0]
    return _get_text(table, "vhost"), _get_text(table, "name")


def _get_text(table: FieldTable, name: str) -> str:
    value: FieldValue = table[name]
    assert isinstance(value, str)
    return value


def _decode_queue_id(record: bytes) -> int:
    value = records.decode_tables(record)[0]["number"]
    assert isinstance(value, int)
    return value
