"""REACH in a publisher: it tells from time to time that it lives, the last it has published, and its age.

So who missed the end of what it published knows, though nothing comes behind it; and who hears it for the first
time knows which of the two was there before. Where it casts again what others lack it repeats what it told the
last few times: so who has begun meanwhile, and missed that, knows what is older than itself.
"""

from collections import deque

from ..layer import Falling, Layer, Say, Site
from ..packet import Data, Fragment, Last

_LONG_AGO = 1e6
EARLIER = 4


class Pulse(Layer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._last = site.options.resumed
        self._due = 0.0
        self._begun = 0.0
        self._told: deque[tuple[float, int]] = deque(maxlen=EARLIER)

    def start(self, now: float) -> None:
        # One that goes on is as old as its first life: who knows it not missed what was before.
        self._begun = now - _LONG_AGO if self.site.options.resumed else now
        self._due = now + self.site.options.beat
        self._tell(now)

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Say) and isinstance(event.packet, Data | Fragment):
            self._last = max(self._last, event.number)
        self._below(event, now)

    def tick(self, now: float) -> None:
        if now >= self._due:
            self._due = now + self.site.options.beat
            self._tell(now)

    def _tell(self, now: float) -> None:
        age = int(1000 * (now - self._begun))
        earlier = tuple((int(1000 * (now - at)), last) for at, last in self._told)
        self.say(Last(self.site.me.incarnation, self._last, age, earlier), None, now)
        if not self.site.options.ordered:
            self._told.append((now, self._last))

    def stall(self, seconds: float) -> None:
        """Others would take us for younger than we are, and give our old messages to those who came since."""
        self._begun -= seconds
        self._told = deque(((at - seconds, last) for at, last in self._told), maxlen=EARLIER)

    def deadline(self) -> float | None:
        return self._due
