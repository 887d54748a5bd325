"""Status records for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from recado.status.record import ActorsStatus, PipelineStatus


def actors_status(name: str = "exchange", **changes: Any) -> ActorsStatus:
    values: dict[str, Any] = {
        "name": name,
        "at": 1_000,
        "started_at": 1_000,
        "interval": 5.0,
        "state": "running",
        "actor_count": 0,
        "waiting": 0,
        "restarts": 0,
        "handled": 0,
        "dead_letters": 0,
    }
    return ActorsStatus(**{**values, **changes})


def pipeline_status(name: str = "bars", **changes: Any) -> PipelineStatus:
    values: dict[str, Any] = {
        "name": name,
        "run": "r1",
        "at": 1_000,
        "started_at": 1_000,
        "interval": 5.0,
        "state": "running",
        "batch": 3,
        "batches": 4,
        "batch_seconds": 0.5,
        "rows": 10,
        "rows_per_second": 2.5,
        "lag": 7,
        "dead_letters": 1,
        "late": 0,
        "duplicates": 0,
    }
    return PipelineStatus(**{**values, **changes})


def encode(record: ActorsStatus | PipelineStatus) -> bytes:
    return msgspec.json.encode(record)
