"""Access to the files of a checkpoint, by names relative to it.

A local or mounted checkpoint is a folder. One with another scheme (`hdfs`, `s3a`, `viewfs` …) is accessed
through Spark's CheckpointFileManager, by which Spark writes its own files there: every file system that Spark
can use for checkpoints works, and files are replaced with the same atomicity.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .errors import PipelineError
from .location import is_local, local_uri, to_local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointError(PipelineError, ValueError):
    """A checkpoint cannot be accessed."""


class CheckpointFiles(Protocol):
    """The files of one checkpoint."""

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a file atomically."""

    def list_names(self, folder: str = "") -> list[str] | None:
        """Return the names in a folder; None if it does not exist."""


class LocalCheckpointFiles:
    """A checkpoint in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes) -> None:
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}")
        part.write_bytes(data)
        part.replace(file)

    def list_names(self, folder: str = "") -> list[str] | None:
        path = self._folder / folder
        return [each.name for each in path.iterdir()] if path.is_dir() else None


class HadoopCheckpointFiles:
    """A checkpoint on any file system of the session's Hadoop configuration."""

    def __init__(self, location: str, spark: SparkSession) -> None:
        self._location = location
        self._hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        streaming: Any = spark._jvm.org.apache.spark.sql.execution.streaming  # type: ignore[union-attr]
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._manager = streaming.checkpointing.CheckpointFileManager.create(self._path(), conf)

    def _path(self, name: str = "") -> Any:
        return self._hadoop.Path(f"{self._location}/{name}" if name else self._location)

    def read(self, name: str) -> bytes | None:
        if not self._manager.exists(self._path(name)):
            return None
        stream = self._manager.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def replace(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._manager.mkdirs(path.getParent())
        stream = self._manager.createAtomic(path, True)
        try:
            stream.write(data)
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def list_names(self, folder: str = "") -> list[str] | None:
        if not self._manager.exists(self._path(folder)):
            return None
        return [status.getPath().getName() for status in self._manager.list(self._path(folder))]


def open_checkpoint(location: str, spark: SparkSession | None) -> CheckpointFiles:
    """Open a checkpoint. Raises CheckpointError if it is not local and there is no Spark session."""
    if is_local(location):
        return LocalCheckpointFiles(to_local_path(location))
    if spark is None:
        raise CheckpointError(f"{location} is on a file system that only Spark can access")
    return HadoopCheckpointFiles(location, spark)


def checkpoint_uri(location: str) -> str:
    """Return the location as a URI, so that Spark does not resolve a path in its default file system."""
    return local_uri(to_local_path(location)) if is_local(location) else location
