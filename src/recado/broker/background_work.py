"""Work in bounded steps that continues after the call that started it.

A deleted queue or exchange is gone immediately for all clients: its name is not found, and no message is
routed to it. Its remains (thousands of bindings, consumers to cancel) are removed here, and so are the
channels and exclusive queues of a closed connection. Settling thousands of deliveries and committing a
large transaction are background work too. The first part runs immediately, so that ordinary operations are
complete when the call returns. The rest runs in the broker's ticks and in the turns of the client that
caused it; it is completed even if that client disconnects.
"""

from itertools import islice
from typing import Final

from .steps import STEP_UNITS_MAX, TURN_UNITS_MAX, Steps, StepTask

FIRST_UNITS_MAX: Final = 4 * STEP_UNITS_MAX  # the first part, run by `start`: 2.5 ms


class BackgroundWork:
    """The unfinished work of a broker: `start` runs the first part, `advance` continues."""

    def __init__(self, first_units_max: int = FIRST_UNITS_MAX) -> None:
        self._first_units_max = first_units_max
        self._unfinished: dict[StepTask[None], None] = {}
        self.cost = 0  # total cost that was charged, for callers that compare before and after
        self.deferred_count = 0  # total number of tasks that were not finished by their first part
        self.now = 0  # time of the current turn

    def __bool__(self) -> bool:
        """Whether there is unfinished work."""
        return bool(self._unfinished)

    def __len__(self) -> int:
        """Return the number of unfinished tasks."""
        return len(self._unfinished)

    def begin_turn(self, now: int) -> None:
        """Set the time at which the following steps run."""
        self.now = now

    def charge(self, cost: int) -> None:
        """Charge a cost to the client whose turn it is."""
        self.cost += cost

    def start(self, steps: Steps[None]) -> StepTask[None]:
        """Run the first part of the work, and leave the rest to `advance`."""
        task = StepTask(steps)
        self.cost += task.advance(self._first_units_max)
        if not task.is_done:
            self._unfinished[task] = None
            self.deferred_count += 1
        return task

    def newest(self, count: int) -> list[StepTask[None]]:
        """Return the tasks that were started last."""
        return list(islice(reversed(self._unfinished), count))

    def advance(self, budget: int = TURN_UNITS_MAX) -> None:
        """Continue all unfinished work, in rotation, within the budget."""
        while budget > 0 and self._unfinished:
            for task in list(islice(self._unfinished, TURN_UNITS_MAX // STEP_UNITS_MAX)):
                del self._unfinished[task]
                budget -= max(task.advance(STEP_UNITS_MAX), 1)
                if not task.is_done:
                    self._unfinished[task] = None
                if budget <= 0:
                    break
