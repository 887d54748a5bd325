"""REACH in a publisher: it tells from time to time that it lives, and the last it has published.

So who missed the end of what it published knows, though nothing comes behind it.
"""

from ..layer import Falling, Layer, Say, Site
from ..packet import Data, Fragment, Last


class Pulse(Layer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._last = 0
        self._due: float | None = None

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Say) and isinstance(event.packet, Data | Fragment):
            if event.number > self._last:
                self._last = event.number
            if self._due is None:
                self._due = now + self.site.options.beat
        self._below(event, now)

    def tick(self, now: float) -> None:
        if self._due is not None and now >= self._due:
            self._due = now + self.site.options.beat
            self.say(Last(self.site.me.incarnation, self._last), None, now)

    def deadline(self) -> float | None:
        return self._due
