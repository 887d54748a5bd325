"""Files that a pipeline stores in its checkpoint beside those of Spark: the stream id and the last status.

CHECKPOINT/            Spark's files: offsets, commits, state …
  recado/identity      the stream id, by which sinks know the batches of this stream
  recado/status.json   the last report
  recado/feeds/        staging areas and publish records of sinks that are feeds; only in a local checkpoint
  spool/SOURCE/        messages of a queue; only in a local checkpoint

The functions need a Spark session only if the checkpoint is not local.
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
    """The contents of `status.json`."""

    report: PipelineReport
    process: int
    """The process id of the driver."""
    at: float
    """Seconds since 1970."""
    state: str = "running"
    """`running`, `ended`, or the error message."""


class CheckpointStatus(msgspec.Struct):
    """The progress recorded in a checkpoint, for `recado pipeline status`."""

    begun: int | None
    """The last batch that Spark has planned; it may be running."""
    done: int | None
    """The last batch that Spark has committed."""
    offsets: list[Any]
    """The end offset of each source in the last planned batch."""
    status: Status | None
    is_alive: bool


def load_stream_id(checkpoint: str, spark: SparkSession | None = None) -> str:
    """Return the id of a stream, which stays the same as long as its checkpoint does.

    A checkpoint without batches is a new stream and gets a new id: its batches are numbered from 0 again and
    must not be mistaken for those of an earlier stream.
    """
    files = open_checkpoint(checkpoint, spark)
    existing = files.read(_IDENTITY_FILE)
    if existing is not None and _batch_numbers(files, "offsets"):
        return existing.decode().strip()
    new_id = uuid.uuid4().hex[:16]
    files.replace(_IDENTITY_FILE, new_id.encode())
    return new_id


def digest_offset_log_entry(checkpoint: str, number: int, spark: SparkSession | None = None) -> str:
    """Return a digest of a batch's entry in Spark's offset log; empty if there is no entry.

    Spark writes the entry before the batch runs and never changes it, so a retried batch has the same
    digest. A batch that is planned again, for example after an older checkpoint was restored, has another
    digest even if its source offsets are equal, because the entry contains the time of planning in
    milliseconds. That matters, because offsets of files and spools have a meaning only within their
    checkpoint.
    """
    entry = open_checkpoint(checkpoint, spark).read(f"offsets/{number}")
    return "" if entry is None else sha256(entry).hexdigest()


def feed_staging_folder(checkpoint: str) -> Path:
    """Return the folder for the staging areas of sinks that publish on feeds.

    Raises OptionError if the checkpoint is not local.
    """
    return to_local_path(checkpoint) / "recado" / "feeds"


def write_status(
    checkpoint: str,
    report: PipelineReport,
    state: str = "running",
    spark: SparkSession | None = None,
) -> None:
    """Store the status of the pipeline."""
    status = Status(report, os.getpid(), time.time(), state)
    open_checkpoint(checkpoint, spark).replace(_STATUS_FILE, msgspec.json.encode(status))


def read_status(checkpoint: str, spark: SparkSession | None = None) -> CheckpointStatus | None:
    """Return the progress recorded in a checkpoint; None if there is no checkpoint.

    Raises CheckpointError if only Spark can read it.
    """
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
    """Parse an entry of the offset log: a version, a line of Spark's metadata, and a line for each source."""
    offsets: list[Any] = []
    for line in entry.decode().splitlines()[2:]:
        try:
            offsets.append(json.loads(line))
        except ValueError:
            offsets.append(line)
    return offsets


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
