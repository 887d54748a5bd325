"""Taking deleted things apart, in bounded steps that go on whatever becomes of the client.

A queue or exchange that is deleted is gone at once for everybody: its name is not found, and no message is
routed to it. What is left of it (bindings by the thousand, consumers to dismiss) is removed here, and so are
the channels and exclusive queues of a connection that ended. Deliveries that are settled by the thousand are
work of this kind, too. A part is done immediately, so that usual things are done when the call returns, the
rest in the ticks of the broker and in the turns of the client that caused it.
"""

from itertools import islice
from typing import Final

from .steps import STEP_UNITS_MAX, TURN_UNITS_MAX, Steps, StepTask

FIRST_UNITS_MAX: Final = 4 * STEP_UNITS_MAX  # the part that `begin` does: 2.5 ms


class BackgroundWork:
    """Work in steps that outlives the call that caused it: `begin` does the first part, `go_on` the rest."""

    def __init__(self, first_units_max: int = FIRST_UNITS_MAX) -> None:
        self._first_units = first_units_max
        self._unfinished: dict[StepTask[None], None] = {}
        self.cost = 0  # what work has cost at first, ever
        self.deferred_count = 0  # how much work was ever left unfinished at first
        self.now = 0  # of the turn in which steps go on; callers set it

    def __bool__(self) -> bool:
        """Whether there is work left."""
        return bool(self._unfinished)

    def start(self, steps: Steps[None]) -> StepTask[None]:
        """Do some of the work, and leave the rest to `go_on`."""
        work = StepTask(steps)
        self.cost += work.advance(self._first_units)
        if not work.is_done:
            self._unfinished[work] = None
            self.deferred_count += 1
        return work

    def newest(self, count: int) -> list[StepTask[None]]:
        """The work that was begun last."""
        return list(islice(reversed(self._unfinished), count))

    def advance(self, budget: int = TURN_UNITS_MAX) -> None:
        """Do some more of all that is left."""
        while budget > 0 and self._unfinished:
            for work in list(islice(self._unfinished, TURN_UNITS_MAX // STEP_UNITS_MAX)):
                del self._unfinished[work]
                budget -= max(work.advance(STEP_UNITS_MAX), 1)
                if not work.is_done:
                    self._unfinished[work] = None
                if budget <= 0:
                    break
