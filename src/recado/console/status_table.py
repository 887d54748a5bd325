"""The latest status record of each source, bounded in number, size and age.

A client that may publish to the exchange of a vhost can send any number of records of any source. So:

SK1  A table holds at most `count_max` records and `bytes_max` bytes. Beyond that, the vhost with the most records
     loses the one that was not renewed for the longest time, so that one vhost does not evict the records of
     others.
SK2  Only complete, valid records are stored. All others are counted, and the first of each vhost is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from recado.status.record import (
    TEXT_MAX_COUNT,
    ActorsStatus,
    MalformedStatusError,
    StatusRecord,
    decode_record,
)

log = logging.getLogger("recado.console")

RECORDS_MAX_COUNT: Final = 1_000
RECORDS_MAX_BYTES: Final = 32 * 1024 * 1024
AGE_MAX_MS: Final = 24 * 3_600_000
STALE_INTERVALS_COUNT: Final = 3
RECORD_OVERHEAD_BYTES: Final = 2_048
"""The memory that a record takes besides its JSON."""

_LONG_FIELDS: Final = ("actors", "failures", "peers")
"""Fields that only the answer about one source has."""


class StoredStatus(msgspec.Struct, frozen=True):
    """A stored record. It is stored as JSON, because decoded it would take several times the memory."""

    vhost: str
    name: str
    received_ms: int
    interval: float
    has_ended: bool
    summary: bytes
    """The fields for lists."""
    body: bytes
    """All fields."""

    @property
    def cost_bytes(self) -> int:
        return len(self.body) + len(self.summary) + RECORD_OVERHEAD_BYTES

    def is_stale(self, now_ms: int) -> bool:
        """Whether a source that has not ended has been silent for several intervals."""
        age_ms = now_ms - self.received_ms
        return not self.has_ended and age_ms > STALE_INTERVALS_COUNT * self.interval * 1000

    def describe(self, now_ms: int, *, is_complete: bool = False) -> dict[str, Any]:
        """Return the JSON object of the source, as the HTTP API has it."""
        fields = msgspec.json.decode(self.body if is_complete else self.summary)
        del fields["kind"]
        return {
            "name": self.name,
            "vhost": self.vhost,
            "stale": self.is_stale(now_ms),
            "received_at": self.received_ms,
            **fields,
        }


class StatusTable:
    """The records of one kind, by vhost and source."""

    def __init__(
        self, count_max: int = RECORDS_MAX_COUNT, bytes_max: int = RECORDS_MAX_BYTES
    ) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._by_vhost: dict[str, dict[str, StoredStatus]] = {}
        """In each vhost, the record that was renewed last is at the end."""
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def stored_bytes(self) -> int:
        return self._bytes

    def put(self, stored: StoredStatus) -> None:
        """Store a record in place of the previous one of its source."""
        self._remove(stored.vhost, stored.name)
        self._by_vhost.setdefault(stored.vhost, {})[stored.name] = stored
        self._count += 1
        self._bytes += stored.cost_bytes
        while self._count > self._count_max or self._bytes > self._bytes_max:
            vhost, records = max(self._by_vhost.items(), key=lambda entry: len(entry[1]))
            self._remove(vhost, next(iter(records)))

    def _remove(self, vhost: str, name: str) -> None:
        records = self._by_vhost.get(vhost, {})
        removed = records.pop(name, None)
        if removed is not None:
            self._count -= 1
            self._bytes -= removed.cost_bytes
            if not records:
                del self._by_vhost[vhost]

    def expire(self, now_ms: int, vhosts: Collection[str]) -> None:
        """Drop the records that are a day old, and those of vhosts that do not exist any more."""
        for vhost, records in list(self._by_vhost.items()):
            is_gone = vhost not in vhosts
            for name, stored in list(records.items()):
                if not is_gone and now_ms - stored.received_ms <= AGE_MAX_MS:
                    break  # the others were renewed later
                self._remove(vhost, name)

    def read(self, vhosts: Collection[str]) -> Iterator[StoredStatus]:
        """Return the records of some vhosts."""
        for vhost in vhosts:
            yield from self._by_vhost.get(vhost, {}).values()

    def find(self, name: str, vhosts: Collection[str]) -> StoredStatus | None:
        """Return the record of a source; the newest one if sources of several vhosts have the name."""
        found = [self._by_vhost.get(vhost, {}).get(name) for vhost in vhosts]
        return max(filter(None, found), key=lambda each: each.received_ms, default=None)


class StatusRecords:
    """The status records of all sources, and how many messages were records."""

    def __init__(
        self, actors: StatusTable | None = None, pipelines: StatusTable | None = None
    ) -> None:
        self.actors = actors or StatusTable()
        self.pipelines = pipelines or StatusTable()
        self.accepted_count = 0
        self.malformed_count = 0
        self._malformed_vhosts: set[str] = set()
        """Vhosts of which a malformed record was logged."""

    def receive(self, vhost: str, key: str, body: bytes, now_ms: int) -> None:
        """Store the record of a message, or count the message as malformed (SK2)."""
        try:
            record = decode_record(key, body)
        except MalformedStatusError as error:
            self.reject(vhost, error)
            return
        self.accepted_count += 1
        table = self.actors if isinstance(record, ActorsStatus) else self.pipelines
        table.put(_store(vhost, record, now_ms))

    def reject(self, vhost: str, reason: Exception) -> None:
        """Count a message that is not a record."""
        self.malformed_count += 1
        if vhost not in self._malformed_vhosts:
            self._malformed_vhosts.add(vhost)
            text = str(reason)[:TEXT_MAX_COUNT]
            log.warning("malformed status record dropped: %r (vhost=%r)", text, vhost)

    def expire(self, now_ms: int, vhosts: Collection[str]) -> None:
        self.actors.expire(now_ms, vhosts)
        self.pipelines.expire(now_ms, vhosts)
        self._malformed_vhosts.intersection_update(vhosts)


def _store(vhost: str, record: StatusRecord, now_ms: int) -> StoredStatus:
    body = msgspec.json.encode(record)
    summary = body
    if isinstance(record, ActorsStatus):
        summary = msgspec.json.encode(_summarize(record))
    return StoredStatus(
        vhost=vhost,
        name=record.name,
        received_ms=now_ms,
        interval=record.interval,
        has_ended=record.has_ended,
        summary=summary,
        body=body,
    )


def _summarize(record: ActorsStatus) -> dict[str, Any]:
    """Return a record without its lists, but with their lengths and the last failure."""
    short = msgspec.structs.replace(record, peers=(), failures=(), actors=())
    fields: dict[str, Any] = msgspec.to_builtins(short)
    for name in _LONG_FIELDS:
        del fields[name]
    return {
        **fields,
        "peer_count": len(record.peers),
        "failure_count": len(record.failures),
        "last_failure": next(iter(record.failures), None),
    }
