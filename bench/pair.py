"""Two worker processes with different hash seeds, so that results that depend on the order of a set differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import cycle
from multiprocessing import get_context
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

Answer = TypeVar("Answer")
Job: TypeAlias = Callable[[], Answer]


class Pair(Generic[Answer]):
    def __init__(self) -> None:
        self._pools = [ProcessPoolExecutor(1, get_context("spawn")) for _ in range(2)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def both(self, job: Job[Answer]) -> tuple[Answer, Answer]:
        """Run a job in both processes, and return both results."""
        first, second = [pool.submit(job) for pool in self._pools]
        return first.result(), second.result()

    def once(self, jobs: Iterator[Job[Answer]]) -> Iterator[Answer]:
        """Run each job in one of the processes; yield the results in the order of the jobs."""
        waiting: deque[Future[Answer]] = deque()
        for job, pool in zip(jobs, cycle(self._pools), strict=False):
            waiting.append(pool.submit(job))
            if len(waiting) > 2 * len(self._pools):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
