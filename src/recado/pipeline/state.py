"""What a pipeline leaves in its checkpoint beside what Spark does: who it is, and how it was doing.

CHECKPOINT/            Spark's: offsets, commits, state …
  recado/identity      an id under which its batches are known to the sinks
  recado/status.json   the last report
  recado/feeds/        what its sinks have published on feeds, and as what
  spool/SOURCE/        messages of a queue
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from .lake.files import folder_of
from .report import Report


class Status(msgspec.Struct):
    """As it is told to others."""

    report: Report
    process: int
    at: float
    """Seconds since 1970."""
    state: str = "running"
    """`running`, `ended`, or why it failed."""


class Found(msgspec.Struct):
    """What a checkpoint says."""

    begun: int | None
    """The last batch whose offsets are noted; it may be under way."""
    done: int | None
    offsets: list[Any]
    """Where each source stands behind the last batch that was begun."""
    status: Status | None
    is_alive: bool


def identity(checkpoint: str) -> str:
    """The id of a stream, the same as long as its checkpoint is.

    A checkpoint without a batch is a new stream: its batches are numbered from 0 again, and must not be taken
    for those of another.
    """
    folder = folder_of(checkpoint)
    place = folder / "recado" / "identity"
    if place.is_file() and _numbers(folder / "offsets"):
        return place.read_text().strip()
    made = uuid.uuid4().hex[:16]
    _replace(place, made)
    return made


def feeds(checkpoint: str) -> Path:
    return folder_of(checkpoint) / "recado" / "feeds"


def note(checkpoint: str, report: Report, state: str = "running") -> None:
    status = Status(report, os.getpid(), time.time(), state)
    place = folder_of(checkpoint) / "recado" / "status.json"
    _replace(place, msgspec.json.encode(status).decode())


def found(checkpoint: str) -> Found | None:
    """None if there is no such checkpoint."""
    folder = folder_of(checkpoint)
    if not folder.is_dir():
        return None
    begun = max(_numbers(folder / "offsets"), default=None)
    done = max(_numbers(folder / "commits"), default=None)
    offsets = [] if begun is None else _offsets(folder / "offsets" / str(begun))
    status = None
    place = folder / "recado" / "status.json"
    if place.is_file():
        status = msgspec.json.decode(place.read_bytes(), type=Status)
    alive = status is not None and status.state == "running" and _lives(status.process)
    return Found(begun, done, offsets, status, alive)


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(each.name) for each in folder.iterdir() if each.name.isdecimal()]


def _offsets(file: Path) -> list[Any]:
    """A line for the version, one for Spark, and one for each source."""
    read = []
    for line in file.read_text().splitlines()[2:]:
        try:
            read.append(json.loads(line))
        except ValueError:
            read.append(line)
    return read


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _replace(place: Path, text: str) -> None:
    """As a whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    written = place.with_name(f".{place.name}.{os.getpid()}")
    written.write_text(text)
    written.replace(place)
