"""Work in bounded steps, so that no client can keep the loop busy for long.

Every call into the broker is atomic, and the loop serves nobody else meanwhile. Work that grows with what a
client has declared or sent (matching thousands of bindings, entering thousands of queues, taking an exchange
apart) is therefore a generator: it yields the cost of each step and returns its result. The caller runs as many
steps as its budget allows and goes on in a later turn, after other clients were served.

The unit of cost is about 5 µs: the time to put a message into one queue. A step is at most `STEP_UNITS_MAX`, or one
call of a library that cannot be divided.

Between two steps the topology may change. The work that runs in steps says what that means for it.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]

TURN_UNITS_MAX: Final = 2048
"""What a client may cost before others are served: about 10 ms."""

STEP_UNITS_MAX: Final = 128
"""The cost after which work yields: 0.6 ms, a small part of a turn."""


class StepTask(Generic[T]):
    """Steps that are under way."""

    __slots__ = ("_result", "_steps", "is_done")

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._result: list[T] = []
        self.is_done = False

    @property
    def result(self) -> T:
        """What the steps returned; only when they are done."""
        return self._result[0]

    def advance(self, budget: int) -> int:
        """Run steps until they are done or have used the budget, which the last may exceed; return the cost."""
        spent = 0
        try:
            while spent < budget and not self.is_done:
                spent += next(self._steps)
        except StopIteration as stop:
            self._result.append(stop.value)
            self.is_done = True
        return spent


def run_to_completion(steps: Steps[T]) -> T:
    """Run all steps at once, for callers that nobody waits for."""
    work = StepTask(steps)
    while not work.is_done:
        work.advance(STEP_UNITS_MAX)
    return work.result


def chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """The items in pieces of at most `size`."""
    if len(items) <= size:
        return (items,)
    return (items[start : start + size] for start in range(0, len(items), size))
