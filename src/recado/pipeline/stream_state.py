"""What a pipeline leaves in its checkpoint beside what Spark does: who it is, and how it was doing.

CHECKPOINT/            Spark's: offsets, commits, state …
  recado/identity      an id under which its batches are known to the sinks
  recado/status.json   the last report
  recado/feeds/        what its sinks have published on feeds, and as what; only of a local checkpoint
  spool/SOURCE/        messages of a queue; only of a local checkpoint

Functions use the Spark session only if the checkpoint is not local.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .checkpoint import CheckpointFiles, open_checkpoint
from .location import to_local_path
from .report import PipelineReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDENTITY_FILE: Final = "recado/identity"
_STATUS_FILE: Final = "recado/status.json"


class Status(msgspec.Struct):
    """As it is told to others."""

    report: PipelineReport
    process: int
    at: float
    """Seconds since 1970."""
    state: str = "running"
    """`running`, `ended`, or why it failed."""


class CheckpointStatus(msgspec.Struct):
    """What a checkpoint says."""

    begun: int | None
    """The last batch whose offsets are noted; it may be under way."""
    done: int | None
    offsets: list[Any]
    """Where each source stands behind the last batch that was begun."""
    status: Status | None
    is_alive: bool


def load_stream_id(checkpoint: str, spark: SparkSession | None = None) -> str:
    """The id of a stream, the same as long as its checkpoint is.

    A checkpoint without a batch is a new stream: its batches are numbered from 0 again, and must not be taken
    for those of another.
    """
    files = open_checkpoint(checkpoint, spark)
    existing = files.read(_IDENTITY_FILE)
    if existing is not None and _batch_numbers(files, "offsets"):
        return existing.decode().strip()
    new_id = uuid.uuid4().hex[:16]
    files.replace(_IDENTITY_FILE, new_id.encode())
    return new_id


def offsets_digest(checkpoint: str, number: int, spark: SparkSession | None = None) -> str:
    """A digest of the entry in Spark's offset log by which a batch was planned; empty if there is none.

    Spark writes the entry before the batch runs and never again: a repeat of the batch has the same digest. A
    batch that is planned anew, as after an older checkpoint was restored, has another one even if its source
    offsets are the same, for the entry has the time of the planning in milliseconds. That matters, as offsets
    of files and spools only have a meaning within their checkpoint.
    """
    entry = open_checkpoint(checkpoint, spark).read(f"offsets/{number}")
    return "" if entry is None else sha256(entry).hexdigest()


def feed_staging_folder(checkpoint: str) -> Path:
    """Raises OptionError if the checkpoint is not local."""
    return to_local_path(checkpoint) / "recado" / "feeds"


def write_status(
    checkpoint: str,
    report: PipelineReport,
    state: str = "running",
    spark: SparkSession | None = None,
) -> None:
    status = Status(report, os.getpid(), time.time(), state)
    open_checkpoint(checkpoint, spark).replace(_STATUS_FILE, msgspec.json.encode(status))


def read_status(checkpoint: str, spark: SparkSession | None = None) -> CheckpointStatus | None:
    """None if there is no such checkpoint. Raises CheckpointError if only a Spark could read it."""
    files = open_checkpoint(checkpoint, spark)
    if files.list_names() is None:
        return None
    begun = max(_batch_numbers(files, "offsets"), default=None)
    done = max(_batch_numbers(files, "commits"), default=None)
    offsets = [] if begun is None else _parse_offsets(files.read(f"offsets/{begun}") or b"")
    data = files.read(_STATUS_FILE)
    status = None if data is None else msgspec.json.decode(data, type=Status)
    alive = status is not None and status.state == "running" and _is_alive(status.process)
    return CheckpointStatus(begun, done, offsets, status, alive)


def _batch_numbers(files: CheckpointFiles, folder: str) -> list[int]:
    return [int(name) for name in files.list_names(folder) or () if name.isdecimal()]


def _parse_offsets(entry: bytes) -> list[Any]:
    """A line for the version, one for Spark, and one for each source."""
    read = []
    for line in entry.decode().splitlines()[2:]:
        try:
            read.append(json.loads(line))
        except ValueError:
            read.append(line)
    return read


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
