"""The difference between a document and a broker: what an import would create, change, leave and skip."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import msgspec

from recado.broker.broker import Broker
from recado.broker.steps import Steps, StepTask

from .document import DefinitionsError, SourceEntry, list_entries, read_definition
from .exporter import to_json_object
from .importer import UNITS_PER_TRIAL
from .json_reader import read_json
from .trial import ImportTrial, Outcome


class ImportDifference:
    """What an import would do, and what prevents it."""

    def __init__(self) -> None:
        self.created: deque[Outcome] = deque()
        self.changed: deque[Outcome] = deque()
        self.unchanged: Counter[str] = Counter()
        """The number of objects by kind."""
        self.skipped: deque[str] = deque()
        self.errors: deque[str] = deque()

    def add(self, location: str, outcome: Outcome) -> None:
        match outcome.action:
            case "created":
                self.created.append(outcome)
            case "changed":
                self.changed.append(outcome)
            case "unchanged":
                self.unchanged[outcome.kind] += 1
            case "skipped":
                self.skipped.append(f"{location}: skipped, {outcome.reason}")

    def render(self) -> Iterator[bytes]:
        """Yield the difference as JSON in small pieces, and forget each, so that it is freed in small pieces too.

        The piece that opens a list also closes the one before it.
        """
        for key, outcomes in (("created", self.created), ("changed", self.changed)):
            yield b'%s"%s":[' % (b"{" if key == "created" else b"],", key.encode())
            separator = b""
            while outcomes:
                yield separator + msgspec.json.encode(_to_json(outcomes.popleft()))
                separator = b","
        yield b'],"unchanged":' + msgspec.json.encode(dict(self.unchanged))
        for key, texts in (("skipped", self.skipped), ("errors", self.errors)):
            yield b'%s,"%s":[' % (b"" if key == "skipped" else b"]", key.encode())
            separator = b""
            while texts:
                yield separator + msgspec.json.encode(texts.popleft())
                separator = b","
        yield b"]}"


def _to_json(outcome: Outcome) -> dict[str, Any]:
    described = {"kind": outcome.kind, **outcome.identity}
    if "arguments" in described:
        described["arguments"] = to_json_object(described["arguments"])
    if outcome.changes:
        described["changes"] = {
            field: {"from": before, "to": after}
            for field, (before, after) in outcome.changes.items()
        }
    return described


class DefinitionsCheck:
    """A dry run of an import in progress; `advance` it until it `is_done`. Nothing is changed or reserved."""

    def __init__(self, broker: Broker, document: object, *, vhost: str | None = None) -> None:
        """`document` is JSON as bytes, or parsed."""
        self.difference = ImportDifference()
        self._broker = broker
        self._document = document
        self._vhost = vhost
        self._task = StepTask(self._run())

    @property
    def is_done(self) -> bool:
        return self._task.is_done

    def advance(self, budget: int, now: int) -> int:
        """Do some steps; return the cost. Nothing depends on `now`, which an import needs.

        Raises `DefinitionsError` if the text is not a definitions document.
        """
        return self._task.advance(budget)

    def _run(self) -> Steps[None]:
        document, self._document = self._document, None
        if isinstance(document, bytes):
            document = yield from read_json(document)
        entries, notes = list_entries(document, self._vhost)
        self.difference.skipped.extend(notes)
        trial = ImportTrial(self._broker)
        for entry in entries:
            try:
                yield from self._examine(trial, entry)
            except DefinitionsError as error:
                self.difference.errors.append(str(error))
            yield UNITS_PER_TRIAL
        self.difference.errors.extend(map(str, trial.find_exceeded_limits()))
        yield from trial.release()

    def _examine(self, trial: ImportTrial, entry: SourceEntry) -> Steps[None]:
        wanted = read_definition(entry.decode())
        if isinstance(wanted, str):
            self.difference.skipped.append(wanted)
        else:
            self.difference.add(wanted.location, (yield from trial.examine(wanted)))
