"""The application of test_celery_survives: tasks that are acked when they are done, and leave a mark."""

# Celery is published without types, so its decorators would make every task untyped.
# mypy: allow-untyped-decorators

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

from . import celery_app

WORK_SECONDS = 0.02


def make(broker: str, prefix: str, marks: Path) -> Celery:
    """As a user of RabbitMQ sets it up who wants no task lost: late acks, and confirms for the sender."""
    app = celery_app.make(broker, "disabled://", prefix)
    app.conf.update(
        broker_transport_options={"confirm_publish": True},
        task_acks_late=True,
        task_ignore_result=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=4,
    )

    @app.task(name="mark", shared=False)
    def mark(number: int) -> None:
        time.sleep(WORK_SECONDS)  # the work: tasks must be under way when the broker is killed
        # One write at the end of the file: other processes' marks do not get between.
        with marks.open("ab", buffering=0) as file:
            file.write(b"%d\n" % number)

    return app


if "RECADO_LATE_BROKER" in os.environ:
    app = make(
        os.environ["RECADO_LATE_BROKER"],
        os.environ["RECADO_LATE_PREFIX"],
        Path(os.environ["RECADO_LATE_MARKS"]),
    )
