"""The clock of one member: monotonic time without the periods in which its event loop was stalled.

A process that was stopped (SIGSTOP, a suspended virtual machine, a blocking call) has received nothing during
the stall. If the stall counted, every timeout of the protocol would expire at once when the process continues:
it would suspect its peers and close gaps although the packets wait in the socket buffer. So the driver tells
the clock when its timer is due. A timer that fires late by more than `tolerance` shows that the loop was
stalled, and the clock leaves the delay out of the time that the member sees.

Only timeouts use this time. `Layer.adjust_for_stall` corrects the other instants:

    moved back      the starts and reports from which the real age of a publisher or member is computed
                    (publisher_heartbeat.py, receive_buffer.py, sync.py)
    moved forward   the instant since which the member has heard its peers without interruption: it must listen
                    again, because packets of the stall may be lost (failure_detector.py)
"""

from math import inf


class MemberClock:
    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._due_member_time = inf  # the deadline in member time
        self._due_monotonic = inf  # the same deadline in monotonic time
        self.stalled_seconds = 0.0
        """Total length of all stalls so far."""

    def expect(self, due: float) -> float:
        """Set the deadline, in member time, by which the loop must run; return it in monotonic time."""
        self._due_member_time, self._due_monotonic = due, due + self.stalled_seconds
        return self._due_monotonic

    def observe(self, monotonic: float) -> float:
        """Note that the loop runs now; return the length of the stall that just ended, or 0.0."""
        late = monotonic - self._due_monotonic
        if late <= self._tolerance:
            return 0.0
        self._due_monotonic = monotonic
        self.stalled_seconds += late
        return late

    def member_time(self, monotonic: float) -> float:
        """Convert monotonic time to member time; rounding never makes it earlier than a deadline that has
        passed."""
        time = monotonic - self.stalled_seconds
        return max(time, self._due_member_time) if monotonic >= self._due_monotonic else time
