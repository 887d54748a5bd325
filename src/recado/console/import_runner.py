"""Runs imports of definitions and their dry runs beside messages: one at a time, in slices of the event loop.

Requests that change definitions wait for the end of an import, so that its result does not depend on how they
interleave; declarations over AMQP wait for it only if it concerns the same names (`Vhost.reserved`).
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from .request import ApiError
from .slices import SLICE_S

if TYPE_CHECKING:
    from recado.broker.broker import Broker
    from recado.server.server import Server

STEP_UNITS_MAX: Final = 32  # between two readings of the clock: 0.2 ms, a small part of a slice


class SlicedWork(Protocol):
    """An import, or a dry run."""

    @property
    def is_done(self) -> bool: ...

    def advance(self, budget: int, now: int) -> int:
        """Do some steps; return the cost."""


class ImportRunner:
    """The import or dry run that is in progress, if there is one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None

    def check_idle(self) -> None:
        """Raise `ApiError` 409 if an import or a dry run is in progress, or an alteration that excludes imports."""
        if self._task is not None or self._server.broker.definitions_locked:
            raise ApiError(
                409,
                "conflict",
                "another import of definitions is in progress, or an alteration of a queue; try again later",
            )

    def start(self, work: SlicedWork) -> asyncio.Future[None]:
        """Run work until it is done, also if the client that requested it disconnects.

        The returned future raises the exceptions of the work. Call `check_idle` before.
        """
        self._task = asyncio.get_running_loop().create_task(self._run(work))
        self._task.add_done_callback(self._on_done)
        return asyncio.shield(self._task)

    async def _run(self, work: SlicedWork) -> None:
        def advance(_: Broker, now: int) -> None:
            slice_end = perf_counter() + SLICE_S
            work.advance(STEP_UNITS_MAX, now)
            while not work.is_done and perf_counter() < slice_end:
                work.advance(STEP_UNITS_MAX, now)

        while not work.is_done:
            self._server.run_on_broker(advance)
            await asyncio.sleep(0)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # retrieved here, because the client that awaits it may have disconnected

    async def wait_until_idle(self) -> None:
        """Wait for the end of the import, if this runner has one in progress; do not wait for dry runs."""
        while self._task is not None and self._server.broker.definitions_locked:
            await asyncio.wait((self._task,))

    async def stop(self) -> None:
        """Stop because the node stops. The next start applies the rest of a committed import."""
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.wait((task,))
