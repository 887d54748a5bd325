"""The Celery application of test_celery.py: loaded by the worker process and by the tests alike.

The worker finds its settings in the environment, the test makes the same application with `make`.
Every name in the broker begins with the prefix, so that two applications share nothing.
"""

# Celery has no types, nor have its decorators.
# mypy: allow-untyped-decorators

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery


def make(broker: str, backend: str, prefix: str) -> Celery:
    """An application whose exchanges and queues are all named after the prefix."""
    app = Celery(prefix, broker=broker, backend=backend, set_as_current=False)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        control_exchange=f"{prefix}.control",
        event_exchange=f"{prefix}.events",
        event_queue_prefix=f"{prefix}.events",
        result_chord_retry_interval=0.05,
        result_exchange=f"{prefix}.results",
        task_default_exchange=prefix,
        task_default_queue=prefix,
        task_default_routing_key=prefix,
        worker_send_task_events=True,
    )

    @app.task(name="add", shared=False)
    def add(x: float, y: float) -> float:
        return x + y

    @app.task(name="total", shared=False)
    def total(numbers: list[float]) -> float:
        return sum(numbers)

    @app.task(name="length", shared=False)
    def length(text: str) -> int:
        return len(text)

    @app.task(name="fail", shared=False)
    def fail(text: str) -> None:
        raise ValueError(text)

    @app.task(name="third_time_lucky", shared=False, bind=True, max_retries=5)
    def third_time_lucky(task: Any) -> int:
        if task.request.retries < 2:
            raise task.retry(countdown=0.1)
        return int(task.request.retries)

    @app.task(name="wait", shared=False)
    def wait() -> None:
        """Runs until it is terminated, which is what its test is about."""
        time.sleep(600)  # longer than the test, which ends it

    return app


if "RECADO_CELERY_BROKER" in os.environ:
    app = make(
        os.environ["RECADO_CELERY_BROKER"],
        os.environ["RECADO_CELERY_BACKEND"],
        os.environ["RECADO_CELERY_PREFIX"],
    )
