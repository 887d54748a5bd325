"""Publishes the status of a run of a pipeline, for the management API of a node of recado.

A thread publishes the latest record every few seconds, also while a batch takes long, and once more at the end. A
broker that cannot be reached never fails the run.
"""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar

import msgspec

from recado.status.publisher import ThreadedStatusPublisher
from recado.status.record import (
    ERROR_MAX_COUNT,
    INTERVAL_DEFAULT_S,
    PARTS_MAX_COUNT,
    PipelineStatus,
    SourceStatus,
    clip,
)

from .definition.problems import InvalidPipelineError, Problem
from .report import PipelineReport

V = TypeVar("V")

COUNT_MAX: Final = 2**63 - 1
_CREDENTIALS: Final = re.compile(r"://[^\s/]*@")


class RunStatus:
    """The status of one run."""

    def __init__(
        self,
        pipeline: str,
        now_ms: int,
        on_change: Callable[[PipelineStatus], object] = lambda _: None,
    ) -> None:
        self.on_change = on_change
        self.record = PipelineStatus(
            name=pipeline,
            run=uuid.uuid4().hex,
            at=now_ms,
            started_at=now_ms,
            interval=INTERVAL_DEFAULT_S,
            state="starting",
            batch=-1,
            batches=0,
            batch_seconds=0.0,
            rows=0,
            rows_per_second=0.0,
            lag=None,
            dead_letters=0,
            late=0,
            duplicates=0,
        )

    def update(self, report: PipelineReport, now_ms: int) -> None:
        """Report progress."""
        sources = {
            name: SourceStatus(
                _count(each.rows),
                _number(each.rows_per_second),
                None if each.lag is None else _count(each.lag),
            )
            for name, each in _clip_parts(report.sources).items()
        }
        lags = [each.lag for each in report.sources.values() if each.lag is not None]
        self._set(
            msgspec.structs.replace(
                self.record,
                at=now_ms,
                state="running",
                batch=report.batch,
                batches=_count(report.batches),
                batch_seconds=_number(report.batch_seconds),
                rows=_count(report.rows),
                rows_per_second=_number(
                    sum(each.rows_per_second for each in report.sources.values())
                ),
                lag=_count(sum(lags)) if lags else None,
                dead_letters=_count(sum(report.dead.values())),
                late=_count(report.late),
                duplicates=_count(report.duplicates),
                sources=sources,
                sinks={name: _count(rows) for name, rows in _clip_parts(report.sinks).items()},
                dead={name: _count(rows) for name, rows in _clip_parts(report.dead).items()},
            )
        )

    def finish(self, now_ms: int, *, was_stopped: bool) -> None:
        state = "stopped" if was_stopped else "finished"
        self._set(msgspec.structs.replace(self.record, at=now_ms, state=state))

    def fail(self, error: BaseException, now_ms: int) -> None:
        text = _CREDENTIALS.sub("://(hidden)@", str(error) or type(error).__name__)
        self._set(
            msgspec.structs.replace(
                self.record, at=now_ms, state="failed", error=clip(text, ERROR_MAX_COUNT)
            )
        )

    def _set(self, record: PipelineStatus) -> None:
        self.record = record
        self.on_change(record)


@contextmanager
def publish_run(pipeline: str, url: str) -> Iterator[RunStatus]:
    """Publish the status of a run until the context ends; an exception that ends it is its failure.

    Raises `InvalidPipelineError` for a wrong URL.
    """
    status = RunStatus(pipeline, now_ms())
    try:
        publisher = ThreadedStatusPublisher(url, status.record)
    except ValueError as error:
        raise InvalidPipelineError(pipeline, [Problem("status", str(error))]) from error
    status.on_change = publisher.set
    try:
        yield status
    except BaseException as error:
        status.fail(error, now_ms())
        raise
    finally:
        publisher.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clip_parts(parts: Mapping[str, V]) -> dict[str, V]:
    return {clip(name): part for name, part in islice(parts.items(), PARTS_MAX_COUNT)}


def _count(value: int) -> int:
    return min(max(value, 0), COUNT_MAX)


def _number(value: float) -> float:
    return value if math.isfinite(value) and value >= 0 else 0.0
