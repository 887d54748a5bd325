"""Long operations on the broker, a millisecond at a time, as long as the client waits for the answer."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from recado.broker.steps import Steps, StepTask

from .request import ApiRequest, amqp_errors_as_answers
from .slices import SLICE_S

if TYPE_CHECKING:
    from recado.broker.broker import Broker

T = TypeVar("T")


async def run_broker_steps(request: ApiRequest, steps: Steps[T]) -> T:
    """Run steps to their end, in slices that are turns of the broker, and return the result.

    The steps find the current time in `now` of the broker's background work. Raises `ApiError` for an error of
    the broker, and `ConnectionError` if the client has disconnected; the steps are then closed where they last yielded.
    """
    task = StepTask(steps)

    def advance(broker: Broker, now: int) -> None:
        broker.background.begin_turn(now)
        slice_end = perf_counter() + SLICE_S
        task.advance(1)
        while not task.is_done and perf_counter() < slice_end:
            task.advance(1)

    def close(broker: Broker, now: int) -> None:
        broker.background.begin_turn(now)
        steps.close()

    try:
        with amqp_errors_as_answers():
            while True:
                request.console.server.run_on_broker(advance)
                if task.is_done:
                    return task.result
                await asyncio.sleep(0)
                if not request.is_connected():
                    raise ConnectionResetError("the client has disconnected")
    finally:
        # In a turn, because steps may complete what they have begun as background work.
        if not task.is_done:
            request.console.server.run_on_broker(close)
