"""The clock of one member: monotonic time without the time in which its event loop did not run.

A process that was stopped (SIGSTOP, a suspended virtual machine, a blocking call) has heard nothing meanwhile.
If that time counted, every timeout of the protocol would expire at once when the process continues: peers
would be suspected and gaps given up although their packets wait in the socket's buffer. So the driver tells
the clock when its timer is due; a timer that is served late by more than `tolerance` shows that the loop did
not run, and the delay is left out of the time that the member sees.

Only timeouts want this time. The age of a publisher is real time: `Layer.stall` moves such instants back.
"""

from math import inf


class MemberClock:
    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._due_member_time = inf  # when the loop must have run again, in the member's time,
        self._due_monotonic = inf  # and in monotonic time
        self.stalled_seconds = 0.0
        """Seconds left out so far."""

    def expect(self, due: float) -> float:
        """The loop is to run by `due`, in the member's time, at the latest; gives it in monotonic time."""
        self._due_member_time, self._due_monotonic = due, due + self.stalled_seconds
        return self._due_monotonic

    def observe(self, monotonic: float) -> float:
        """The loop runs: how long it was stalled, 0 if it was not."""
        late = monotonic - self._due_monotonic
        if late <= self._tolerance:
            return 0.0
        self._due_monotonic = monotonic
        self.stalled_seconds += late
        return late

    def member_time(self, monotonic: float) -> float:
        """What the member is told; by no rounding earlier than what it waits for."""
        time = monotonic - self.stalled_seconds
        return max(time, self._due_member_time) if monotonic >= self._due_monotonic else time
