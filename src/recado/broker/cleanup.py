"""Taking deleted things apart, in bounded steps that go on whatever becomes of the client.

A queue or exchange that is deleted is gone at once for everybody: its name is not found, and no message is
routed to it. What is left of it (bindings by the thousand, consumers to dismiss) is removed here, and so are
the channels and exclusive queues of a connection that ended. Deliveries that are settled by the thousand are
work of this kind, too. A part is done immediately, so that usual things are done when the call returns, the
rest in the ticks of the broker and in the turns of the client that caused it.
"""

from itertools import islice
from typing import Final

from .steps import STEP_UNITS, TURN_UNITS, Steps, Work

FIRST_UNITS: Final = 4 * STEP_UNITS  # the part that `begin` does: 2.5 ms


class Cleanup:
    """Work in steps that outlives the call that caused it: `begin` does the first part, `go_on` the rest."""

    def __init__(self, first_units: int = FIRST_UNITS) -> None:
        self._first_units = first_units
        self._unfinished: dict[Work[None], None] = {}
        self.spent = 0  # what work has cost at first, ever
        self.begun = 0  # how much work was ever left unfinished at first
        self.now = 0  # of the turn in which steps go on; callers set it

    def __bool__(self) -> bool:
        """Whether there is work left."""
        return bool(self._unfinished)

    def begin(self, steps: Steps[None]) -> Work[None]:
        """Do some of the work, and leave the rest to `go_on`."""
        work = Work(steps)
        self.spent += work.advance(self._first_units)
        if not work.is_done:
            self._unfinished[work] = None
            self.begun += 1
        return work

    def newest(self, count: int) -> list[Work[None]]:
        """The work that was begun last."""
        return list(islice(reversed(self._unfinished), count))

    def go_on(self, budget: int = TURN_UNITS) -> None:
        """Do some more of all that is left."""
        while budget > 0 and self._unfinished:
            for work in list(islice(self._unfinished, TURN_UNITS // STEP_UNITS)):
                del self._unfinished[work]
                budget -= max(work.advance(STEP_UNITS), 1)
                if not work.is_done:
                    self._unfinished[work] = None
                if budget <= 0:
                    break
