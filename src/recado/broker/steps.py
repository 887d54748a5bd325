"""Work in bounded steps, so that no client can block the event loop for long.

Every call into the broker is atomic, and no other client is served during the call. Work whose size clients
control (matching thousands of bindings, publishing to thousands of queues, deleting an exchange) is
therefore a generator: it yields the cost of each step and returns its result. The caller runs as many steps
as its budget allows and continues in a later turn, after other clients were served.

The unit of cost is about 5 µs: the time to put a message into one queue. A step costs at most
`STEP_UNITS_MAX`, or one library call that cannot be divided.

The topology may change between two steps; each generator documents what that means for it.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]

TURN_UNITS_MAX: Final = 2048
"""The cost that a client may cause before other clients are served: about 10 ms."""

STEP_UNITS_MAX: Final = 128
"""The cost after which work yields: 0.6 ms, a small part of a turn."""


class StepTask(Generic[T]):
    """Steps in progress."""

    __slots__ = ("_result", "_steps", "is_done")

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._result: list[T] = []
        self.is_done = False

    @property
    def result(self) -> T:
        """The return value of the steps, once they are done."""
        return self._result[0]

    def advance(self, budget: int) -> int:
        """Run steps until they are done or the budget is used up; return the cost.

        The last step may exceed the budget.
        """
        cost = 0
        try:
            while cost < budget and not self.is_done:
                cost += next(self._steps)
        except StopIteration as stop:
            self._result.append(stop.value)
            self.is_done = True
        return cost


def run_to_completion(steps: Steps[T]) -> T:
    """Run all steps at once, for callers outside the event loop and for tests."""
    task = StepTask(steps)
    while not task.is_done:
        task.advance(STEP_UNITS_MAX)
    return task.result


def chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """Return the items in chunks of at most `size`."""
    if len(items) <= size:
        return (items,)
    return (items[start : start + size] for start in range(0, len(items), size))
