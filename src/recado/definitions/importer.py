"""Import of definitions into a broker: all of them, or none if any of them cannot be imported.

As with RabbitMQ, entities that the document does not mention stay, and users, permissions, policies and global
parameters of the same name are replaced. Entities named `amq.…` are skipped, and so are bindings to entities
that do not exist, which occur in RabbitMQ's exports. An existing queue or exchange that differs is an error;
RabbitMQ silently leaves it as it is.

An import runs in bounded steps (`broker/steps.py`), between which clients are served:

1. Each definition is tried on copies (`trial.py`). Its names are reserved: a client that declares or deletes one of
   them waits until the import is done, so that no definition can fail after it has passed.
2. The folders of new streams are created, the only part for which the disk can fail.
3. What changes is staged: written to the store in parts of some milliseconds each, and after them a marker.
4. The parts are applied one after the other, each in an atomic group that also deletes it.

A crash before the marker leaves only parts, which the next start drops; after a later crash, the next start
applies the parts that are left (`resume_import`). The reasons are in docs/decisions/0019.

DI1  After an import, everything that the document defines exists as it is defined there. What a client or a
     timer deletes while the import runs counts as deleted after it.
DI2  A failed import has changed nothing, and a crash leaves all of it or nothing, after the next start. While
     the import is applied, other clients see a part of it.
DI3  Importing the same document again changes nothing, except that a password in plain text is hashed again.
DI4  A step costs at most `PART_UNITS_MAX`, or is one entry, which has at most 256 Ki characters over HTTP.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from recado.broker.access import User
from recado.broker.broker import Broker
from recado.broker.policy import Policy
from recado.broker.steps import TURN_UNITS_MAX, Steps, StepTask

from .document import (
    BindingDefinition,
    Definition,
    DefinitionsError,
    ExchangeDefinition,
    GlobalParameterDefinition,
    PermissionDefinition,
    PolicyDefinition,
    QueueDefinition,
    SourceEntry,
    UserDefinition,
    VhostDefinition,
    list_entries,
    read_definition,
    without_password,
)
from .json_reader import read_json
from .trial import ImportTrial, Outcome

log = logging.getLogger("recado.definitions")

PART_UNITS_MAX: Final = 256  # to apply a part of an import: about 1.3 ms
UNITS_PER_TRIAL: Final = 4  # to try a definition
UNITS_PER_DEFINITION: Final = 8  # to apply it, in addition to its bytes
UNITS_PER_STREAM: Final = 60  # to create its folder
BYTES_PER_UNIT: Final = 64  # of the JSON of an entry, to store and decode it
COMMITTED: Final = "committed"  # the name of the marker; those of the parts are numbers
# Applied also if unchanged, because a user of the configuration is not stored yet.
_ALWAYS_APPLIED: Final = ("user", "permission", "topic_permission")


def import_definitions(
    broker: Broker,
    document: object,
    now: int,
    *,
    vhost: str | None = None,
    loopback_users: Collection[str] = (),
) -> list[str]:
    """Import a parsed JSON document in one call; return notes on skipped entries.

    With `vhost`, everything is imported into that vhost. `loopback_users` are the users that can only log in
    via localhost. Raises `DefinitionsError`, and `OSError` if new streams cannot be created on disk.
    """
    work = DefinitionsImport(broker, document, vhost=vhost, loopback_users=loopback_users)
    while not work.is_done:
        work.advance(TURN_UNITS_MAX, now)
    return work.notes


def resume_import(broker: Broker, now: int, loopback_users: Collection[str] = ()) -> None:
    """After a restart: complete the import that a crash interrupted, or drop it if it was not committed.

    Raises `OSError` if new streams cannot be created on disk.
    """
    staged = broker.staged_imports
    is_committed = COMMITTED in staged
    applier = DefinitionsApplier(broker, loopback_users)
    for name in sorted(staged.keys() - {COMMITTED}):
        with _atomic_group(broker):
            if is_committed:
                applier.apply(staged[name], now)
            broker.stage_import(name, None)
    if is_committed:
        applier.apply_policies(now)
        broker.stage_import(COMMITTED, None)
        log.warning("import of definitions completed: the node had ended during it")
    staged.clear()


@contextmanager
def _atomic_group(broker: Broker) -> Iterator[None]:
    broker.store.begin_atomic_group()
    try:
        yield
    finally:
        broker.store.end_atomic_group()


class DefinitionsImport:
    """An import in progress; `advance` it until it `is_done`."""

    def __init__(
        self,
        broker: Broker,
        document: object,
        *,
        vhost: str | None = None,
        loopback_users: Collection[str] = (),
    ) -> None:
        """`document` is JSON as bytes, or parsed. Raises `DefinitionsError` if definitions are locked."""
        if broker.definitions_locked:
            raise DefinitionsError(
                "another import of definitions is in progress, or an alteration of a queue; try again later"
            )
        broker.definitions_locked = True
        self.notes: list[str] = []
        """About skipped entries."""
        self._broker = broker
        self._document = document
        self._vhost = vhost
        self._now = 0
        self._applier = DefinitionsApplier(broker, loopback_users)
        self._parts: deque[bytes] = deque()
        self._task = StepTask(self._run())

    @property
    def is_done(self) -> bool:
        return self._task.is_done

    def advance(self, budget: int, now: int) -> int:
        """Do some steps; return the cost.

        Raises `DefinitionsError` if the document cannot be imported, and `OSError` if new streams cannot be
        created on disk. Then the import has ended, and nothing was changed.
        """
        self._now = now
        return self._task.advance(budget)

    def _run(self) -> Steps[None]:
        trial = ImportTrial(self._broker, reserve=True)
        try:
            yield from self._try_all(trial)
            for vhost, name, settings in trial.list_new_streams():
                self._broker.store.prepare_stream(vhost, name, settings)
                yield UNITS_PER_STREAM
        except Exception:
            yield from self._finish(trial)
            raise
        for number, part in enumerate(self._parts):
            self._broker.stage_import(_name_part(number), part)
            yield len(part) // BYTES_PER_UNIT
        self._broker.stage_import(COMMITTED, b"")
        self._applier.trial = trial
        for number in range(len(self._parts)):
            with _atomic_group(self._broker):
                cost = self._applier.apply(self._parts.popleft(), self._now)
                self._broker.stage_import(_name_part(number), None)
            yield cost
        self._applier.apply_policies(self._now)
        self._broker.stage_import(COMMITTED, None)
        yield from self._finish(trial)

    def _finish(self, trial: ImportTrial) -> Steps[None]:
        yield from self._broker.store.discard_prepared_streams()
        yield from trial.release()
        self._broker.definitions_locked = False

    def _try_all(self, trial: ImportTrial) -> Steps[None]:
        """Try all definitions, and collect the entries of those that change something in parts."""
        document, self._document = self._document, None
        if isinstance(document, bytes):
            document = yield from read_json(document)
        entries, self.notes = list_entries(document, self._vhost)
        part = _Part(self._vhost)
        for entry in entries:
            decoded = entry.decode()
            wanted = read_definition(decoded)
            if isinstance(wanted, str):
                self.notes.append(wanted)
                continue
            outcome = yield from trial.examine(wanted)
            if outcome.action == "skipped":
                self.notes.append(f"{wanted.location}: skipped, {outcome.reason}")
            elif outcome.action != "unchanged" or outcome.kind in _ALWAYS_APPLIED:
                part.add(without_password(decoded, wanted) or entry, outcome)
                if part.cost >= PART_UNITS_MAX:
                    self._parts.append(part.encode())
                    part = _Part(self._vhost)
            yield UNITS_PER_TRIAL
        if part.entries:
            self._parts.append(part.encode())
        for error in trial.find_exceeded_limits():
            raise error
        trial.claim_limits()


def _name_part(number: int) -> str:
    return f"{number:08}"


class _Part:
    """Entries of a document that are applied in one step."""

    def __init__(self, vhost: str | None) -> None:
        self.entries: list[tuple[str, msgspec.Raw]] = []
        self.cost = 0
        self._vhost = vhost

    def add(self, entry: SourceEntry, outcome: Outcome) -> None:
        try:
            fields = msgspec.json.encode(entry.fields, enc_hook=_to_dict)
        except (TypeError, ValueError, OverflowError) as error:
            raise DefinitionsError(f"{entry.location}: not a JSON value: {error}") from None
        self.entries.append((entry.section, msgspec.Raw(fields)))
        self.cost += UNITS_PER_DEFINITION + len(fields) // BYTES_PER_UNIT + outcome.cost

    def encode(self) -> bytes:
        return msgspec.json.encode((self._vhost, self.cost, self.entries))


def _to_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"objects of type {type(value).__name__} are not supported")


class DefinitionsApplier:
    """Applies parts of an import that was tried before."""

    def __init__(self, broker: Broker, loopback_users: Collection[str]) -> None:
        self.trial: ImportTrial | None = None
        """The trial that reserves names, also in vhosts that are to be created; None after a restart."""
        self._broker = broker
        self._loopback_users = loopback_users
        self._now = 0
        self._changed_users: dict[str, User] = {}
        self._changed_policies: dict[str, list[Policy]] = {}
        self._vhosts_with_policies: dict[str, None] = {}

    def apply(self, part: bytes, now: int) -> int:
        """Apply a part; return the cost."""
        self._now = now
        vhost, cost, entries = msgspec.json.decode(part)
        for number, (section, fields) in enumerate(entries):
            wanted = read_definition(SourceEntry(section, f"{section}[{number}]", fields, vhost))
            assert not isinstance(wanted, str), "skipped entries are in no part"
            try:
                self._apply(wanted)
            except Exception:  # a bug met by one entry must not leave the import unfinished
                log.exception("definition not imported: internal error (entry=%s)", wanted.location)
        for user in self._changed_users.values():
            is_local = user.name in self._loopback_users
            self._broker.add_user(replace(user, loopback_only=is_local), persist=True)
        for name, policies in self._changed_policies.items():
            self._broker.store_policies(name, policies)
            self._vhosts_with_policies[name] = None
        self._changed_users, self._changed_policies = {}, {}
        return int(cost)

    def apply_policies(self, now: int) -> None:
        """At the end: apply the policies of the import to queues and exchanges that existed before it."""
        for name in self._vhosts_with_policies:
            if name in self._broker.vhosts:
                self._broker.apply_policies(name, now)

    def _apply(self, wanted: Definition) -> None:
        """Apply a definition; do nothing if an object that it refers to was deleted since it was tried."""
        broker = self._broker
        match wanted:
            case GlobalParameterDefinition():
                broker.set_global_parameter(wanted.name, wanted.value)
            case UserDefinition():
                name = wanted.user.name
                self._changed_users[name] = wanted.apply_to(self._find_user(name))
            case PermissionDefinition():
                user = self._find_user(wanted.user)
                if user is not None and wanted.vhost in broker.vhosts:
                    self._changed_users[wanted.user] = wanted.apply_to(user)
            case VhostDefinition():
                self._apply_vhost(wanted)
            case PolicyDefinition() if wanted.vhost in broker.vhosts:
                self._changed_policies.setdefault(wanted.vhost, []).append(wanted.policy)
            case ExchangeDefinition() if wanted.vhost in broker.vhosts:
                broker.vhosts[wanted.vhost].declare_exchange(
                    wanted.name,
                    wanted.kind,
                    durable=wanted.durable,
                    auto_delete=wanted.auto_delete,
                    internal=wanted.internal,
                    arguments=wanted.arguments,
                )
            case QueueDefinition() if wanted.vhost in broker.vhosts:
                vhost = broker.vhosts[wanted.vhost]
                settings = wanted.parse_settings(vhost.settings.default_queue_type)
                if vhost.find_equivalent_queue(wanted.name, settings, None) is None:
                    if self.trial is not None:  # it has counted the queue for the limits
                        vhost.pending_queue_count -= 1
                    broker.create_queue(vhost, wanted.name, settings, None, self._now)
            case BindingDefinition() if wanted.vhost in broker.vhosts:
                vhost = broker.vhosts[wanted.vhost]
                source = vhost.exchanges.get(wanted.source)
                destinations: Any = vhost.queues if wanted.to_queue else vhost.exchanges
                destination = destinations.get(wanted.destination)
                if source is not None and destination is not None:
                    if self.trial is not None:
                        vhost.pending_binding_count -= 1
                    vhost.add_binding(source, destination, wanted.routing_key, wanted.arguments)
            case _:
                pass

    def _find_user(self, name: str) -> User | None:
        return self._changed_users.get(name) or self._broker.users.get(name)

    def _apply_vhost(self, wanted: VhostDefinition) -> None:
        name, broker = wanted.vhost, self._broker
        if wanted.creates and name not in broker.vhosts:
            broker.add_vhost(name, persist=True)
            if self.trial is not None:
                self.trial.reserve_in(broker.vhosts[name])
        vhost = broker.vhosts.get(name)
        if vhost is not None:
            settings = wanted.apply_to(vhost.settings)
            if settings != vhost.settings:
                broker.configure_vhost(name, settings)
