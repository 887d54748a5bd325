"""Snapshots of queues, or of messages of a queue, for an action on all of them.

What an operator sees and what an action concerns must be the same, although queues fill and new ones are declared. So
the node keeps which objects were chosen; an action concerns these, if they are still there, and no others. A snapshot
belongs to a user and has an id, so a page can be loaded again while the action runs.

SN1  A snapshot has at most `QUEUES_MAX_COUNT` queues or `MESSAGES_MAX_COUNT` messages.
SN2  At most `SNAPSHOTS_MAX_COUNT` are kept, and `SNAPSHOTS_OF_USER_MAX_COUNT` of a user: the oldest one of that user
     that is not in use gives way to a new one. They are forgotten after `KEPT_S`, and none while its action runs.
SN3  A snapshot is used for one action.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.server.connection import now_ms

from .request import ApiError

if TYPE_CHECKING:
    import asyncio

    from recado.broker.peek import PeekedMessage
    from recado.broker.queue import Queue

QUEUES_MAX_COUNT: Final = 100_000
MESSAGES_MAX_COUNT: Final = 100_000
SNAPSHOTS_MAX_COUNT: Final = 64
SNAPSHOTS_OF_USER_MAX_COUNT: Final = 8
KEPT_S: Final = 3_600
SAMPLE_MAX_COUNT: Final = 20
ERRORS_MAX_COUNT: Final = 100
_ID_BYTES: Final = 12


class ActionProgress(msgspec.Struct):
    """How far the action on a snapshot is."""

    action: str
    destination: str | None
    started_at: int
    ended_at: int | None = None
    done: int = 0
    """Objects that the action has dealt with."""
    failed: int = 0
    totals: dict[str, int] = {}
    """Sums of what the action counts, such as `moved`."""
    errors: list[dict[str, str]] = []
    """The first failures."""
    stop_reason: str | None = None


class ObjectSnapshot:
    """Chosen queues, or chosen messages of one queue."""

    def __init__(self, user: str, description: str, *, is_complete: bool) -> None:
        self.id = secrets.token_hex(_ID_BYTES)
        self.user = user
        self.description = description
        """What was chosen, such as a filter."""
        self.is_complete = is_complete
        """False if more was chosen than a snapshot can have."""
        self.created_at = now_ms()
        self.queues: Sequence[Queue] = ()
        self.queue: Queue | None = None
        self.positions: Sequence[int] | None = None
        self.sample: Sequence[PeekedMessage] = ()
        self.message_count = 0
        """Ready messages of the queues, or the chosen messages."""
        self.progress: ActionProgress | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """The number of objects."""
        return len(self.queues) if self.positions is None else len(self.positions)

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def expires_at(self) -> int:
        since = self.created_at
        if self.progress is not None and self.progress.ended_at is not None:
            since = self.progress.ended_at
        return since + KEPT_S * 1_000

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": "queues" if self.positions is None else "messages",
            "description": self.description,
            "complete": self.is_complete,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "count": self.count,
            "message_count": self.message_count,
            "vhost": self.queue.vhost.name if self.queue is not None else None,
            "queue": self.queue.name if self.queue is not None else None,
            "running": self.is_running,
            "progress": msgspec.to_builtins(self.progress),
        }


class SnapshotTable:
    """The snapshots of a node."""

    def __init__(self) -> None:
        self._snapshots: dict[str, ObjectSnapshot] = {}

    def add(self, snapshot: ObjectSnapshot) -> None:
        """Keep a snapshot. Raises `ApiError` for SN2."""
        self._forget_expired()
        of_user = self.list_of(snapshot.user)
        idle = [each for each in of_user if not each.is_running]
        if len(of_user) >= SNAPSHOTS_OF_USER_MAX_COUNT and idle:
            self.remove(idle[-1])
        elif len(of_user) >= SNAPSHOTS_OF_USER_MAX_COUNT or (
            len(self._snapshots) >= SNAPSHOTS_MAX_COUNT
        ):
            raise ApiError(
                429,
                "too_many_requests",
                f"{len(self._snapshots)} snapshots are kept, {len(of_user)} of them of this user:"
                f" at most {SNAPSHOTS_MAX_COUNT} and {SNAPSHOTS_OF_USER_MAX_COUNT}",
            )
        self._snapshots[snapshot.id] = snapshot

    def find(self, snapshot_id: str, user: str) -> ObjectSnapshot | None:
        """Return a snapshot of this user."""
        self._forget_expired()
        snapshot = self._snapshots.get(snapshot_id)
        return snapshot if snapshot is not None and snapshot.user == user else None

    def list_of(self, user: str) -> list[ObjectSnapshot]:
        """Return the snapshots of a user, the newest first."""
        self._forget_expired()
        return [each for each in reversed(self._snapshots.values()) if each.user == user]

    def remove(self, snapshot: ObjectSnapshot) -> None:
        """Forget a snapshot; an action on it ends at the next object."""
        if snapshot.task is not None:
            snapshot.task.cancel()
        self._snapshots.pop(snapshot.id, None)

    def close(self) -> None:
        """End all actions, because the node stops."""
        for each in list(self._snapshots.values()):
            self.remove(each)

    def _forget_expired(self) -> None:
        now = now_ms()
        for each in list(self._snapshots.values()):
            if each.expires_at <= now and not each.is_running:
                self.remove(each)
