"""The traces of a node: which run, until when, and what the last ones have found.

TT1  At most `TRACES_MAX_COUNT` traces are kept; a new one takes the place of the one that was stopped first, and is
     refused if all of them run.
TT2  A trace runs for at most `DURATION_MAX_S`, and is forgotten `KEPT_S` after it was stopped.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final

from recado.broker.message_observer import add_message_observer, remove_message_observer
from recado.server.connection import now_ms
from recado.server.session import Session

from .local_channel import LocalChannel
from .message_trace import Trace, TraceFilter
from .request import ApiError
from .resources.connections import session_name

if TYPE_CHECKING:
    from recado.broker.consumer import PeerConnection
    from recado.broker.message_filter import MessageFilter
    from recado.broker.queue import Queue
    from recado.broker.vhost import Vhost
    from recado.server.server import Server

TRACES_MAX_COUNT: Final = 8
DURATION_MAX_S: Final = 3_600
DURATION_DEFAULT_S: Final = 300
KEPT_S: Final = 3_600.0
_ID_BYTES: Final = 6


class RunningTrace:
    """A trace, who started it, and its times in milliseconds since 1970."""

    def __init__(self, trace: Trace, vhost: Vhost[Queue], user: str, duration_s: int) -> None:
        self.id = secrets.token_hex(_ID_BYTES)
        self.trace = trace
        self.vhost = vhost
        self.user = user
        self.started_at = now_ms()
        self.ends_at = self.started_at + duration_s * 1_000
        self.is_running = True
        self.timer: asyncio.TimerHandle | None = None

    def describe(self) -> dict[str, Any]:
        trace = self.trace
        return {
            "id": self.id,
            "vhost": self.vhost.name,
            "user": self.user,
            "message_id": trace.filter.message_id,
            "correlation_id": trace.filter.correlation_id,
            "selector": trace.filter.selector,
            "started_at": self.started_at,
            "ends_at": self.ends_at,
            "running": self.is_running,
            "message_count": len(trace.messages),
            "chosen": trace.chosen_count,
            "forgotten": trace.forgotten_count,
            "skipped": trace.skipped_count,
        }


class TraceTable:
    """Starts, stops and keeps traces."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._traces: dict[str, RunningTrace] = {}

    def list(self) -> list[RunningTrace]:
        """Return all traces, the newest first."""
        return list(reversed(self._traces.values()))

    def find(self, trace_id: str) -> RunningTrace | None:
        return self._traces.get(trace_id)

    def start(
        self,
        vhost: Vhost[Queue],
        filter_: TraceFilter,
        message_filter: MessageFilter | None,
        *,
        user: str,
        duration_s: int,
    ) -> RunningTrace:
        """Start a trace as a part of the current turn of the broker. Raises `ApiError` for TT1."""
        if len(self._traces) >= TRACES_MAX_COUNT:
            stopped = [each for each in self._traces.values() if not each.is_running]
            if not stopped:
                reason = f"{TRACES_MAX_COUNT} traces are running, the maximum: stop one of them"
                raise ApiError(429, "too_many_requests", reason)
            self.forget(min(stopped, key=lambda each: each.ends_at))
        trace = Trace(filter_, message_filter, now_ms, _name_connection)
        running = RunningTrace(trace, vhost, user, duration_s)
        self._traces[running.id] = running
        vhost.background.start(add_message_observer(vhost, trace))
        running.timer = self._server.loop.call_later(duration_s, self._stop_at_end, running)
        return running

    def stop(self, running: RunningTrace) -> None:
        """End a trace as a part of the current turn of the broker; what it has found stays for a while."""
        if not running.is_running:
            return
        running.is_running = False
        running.ends_at = now_ms()
        running.vhost.background.start(remove_message_observer(running.vhost, running.trace))
        running.trace.clear_locations()
        if running.timer is not None:
            running.timer.cancel()
        running.timer = self._server.loop.call_later(KEPT_S, self.forget, running)

    def forget(self, running: RunningTrace) -> None:
        """Remove a trace that was stopped."""
        assert not running.is_running
        if running.timer is not None:
            running.timer.cancel()
        self._traces.pop(running.id, None)

    def close(self) -> None:
        """Cancel all timers, because the node stops."""
        for each in self._traces.values():
            if each.timer is not None:
                each.timer.cancel()

    def _stop_at_end(self, running: RunningTrace) -> None:
        self._server.run_on_broker(lambda _broker, _now: self.stop(running))


def _name_connection(connection: PeerConnection) -> str:
    if isinstance(connection, Session):
        return session_name(connection)
    return "HTTP API" if isinstance(connection, LocalChannel) else ""
