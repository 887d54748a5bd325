"""SYNC: integrates a subscriber that returns. What it missed comes from an archive, then what came live
meanwhile.

It joins first. The first view that it shares with an archive has a cut: everything before the cut is for the
archive to send and to classify, everything behind it comes live and is held until then. So the two meet
without gap or double, however far the archive lags behind.

S1  Of each publisher what passes up goes on from where recovery began, without gap or double; before that come
    messages out of the holes of the vector that it began with.
S2  Nothing live passes before all that is before it has been recovered.
S3  What is held is bounded: if it is too much it is let go, and recovered from the archive too.
S4  The archive keeps nothing about who recovers: each question says all that is needed, so any archive can go
    on.
S5  The cut of the view that one returns in may be behind what the last life was given. Where the archive begins
    the recovery, what comes live is marked as uncertain until an archive has told how far earlier lives can
    have come, and up to there.
S6  What one archive has recorded as lost another may have: it is passed over only if all archives in the view
    say so, and is then a hole in the vector.
S7  Without one order for all, an archive that does not name a publisher may not have heard it yet. What comes
    of that one is uncertain too, unless it certainly began after us, when all earlier lives were over.
S8  A question keeps its number until an answer to it is taken, from any archive. So an answer is of use even if
    it takes longer than the time after which the question is repeated.
"""

from collections import deque

import msgspec

from ..block import Malformed
from ..boundary import Batch, Failed, Policy, Recovered
from ..layer import Began, Changed, Heard, Layer, Messages, Missing, Rising, Site
from ..packet import Answer, Bound, Doubt, Offer, Recover
from ..vector import Span, Vector, within, without
from ..views import OPEN, Certainty, Lost, MemberId
from ..wire import carried
from .reception import ORDERS, Reception

Waiting = Messages | Missing | Changed
RARELY = 60.0  # seconds between questions about publishers that are silent


class Sync(Layer):
    def __init__(self, site: Site, reception: Reception) -> None:
        super().__init__(site)
        self.reception = reception
        self._begun = 0.0
        self._live = False
        self._joined = False
        self._anchored = False  # in a view with an archive
        self._target: dict[bytes, int] = {}
        self._done: dict[bytes, int] | None = None
        self._holes: dict[bytes, list[Span]] = {}  # of the vector that it began with
        self._denied: dict[bytes, dict[MemberId, int]] = {}
        """Of whom archives lack what comes next: which, and up to where (S6)."""
        self._held: deque[Waiting] = deque()
        self._held_bytes = 0
        self._archive: MemberId | None = None
        self._offset = 0
        self._number = 0  # of the question; a repetition has the same (S8)
        self._attempt = 0
        self._due: float | None = None
        self._answered = 0.0  # when an archive was last heard
        self._bound: dict[bytes, int] | None = None  # of what earlier lives can have been given
        self._unnamed: set[bytes] = set()  # of whom something came, and no archive has told (S7)
        self._is_marked = site.options.recovery in (Policy.PESSIMISTIC, Policy.ARCHIVE)
        self._doubt_due: float | None = None
        self._doubts = 0
        self._pause = site.options.again

    def start(self, now: float) -> None:
        self._begun = now

    def stall(self, seconds: float) -> None:
        self._begun -= seconds

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Changed(record) if not self._joined:
                self._join(event, now)
            case Changed(record) if not (self._live or self._anchored) and record.view.archives():
                self._anchor(event)
            case Messages() | Missing() | Changed():
                if self._live:
                    self._pass(event, now)
                else:
                    self._hold(event)
            case Heard(_, sender, Answer() as answer):
                if not self._live and answer.number == self._number:
                    self._number += 1
                    self._archive = sender
                    self._take(sender, answer, now)
            case Heard(_, _, Bound(vector)):
                self._bound = vector
                self._unnamed -= vector.keys()
                if OPEN not in vector.values() and not self._unnamed:
                    self._doubt_due = None
            case Heard(_, sender, Offer(start)):
                if self._waits_for_offer():
                    self._begin(start, now)
                    self._number += 1
                    self._archive = sender
                    self._ask(now)
            case _:
                self._above(event, now)

    # --- joining ---

    def _join(self, event: Changed, now: float) -> None:
        self._joined = True
        options = self.site.options
        cut = _without_orders(event.record.cut)
        if options.recovery is Policy.NONE:
            self._begin(Vector(cut), now)
            self._live = True
            self.site.effects.append(Recovered(Vector(cut)))
            self._above(event, now)
            return
        self._target = cut
        self._answered = now
        self._doubt_due = now if self._is_marked else None
        self._hold(event)
        self._anchored = bool(event.record.view.archives())
        if options.recovery is Policy.VECTOR:
            self._begin(options.vector, now)
        # An archive that begins by itself is given a little time to do so.
        patient = options.recovery is Policy.ARCHIVE
        self._due = now + 5 * options.again if patient else now

    def _anchor(self, event: Changed) -> None:
        """What came so far came without an archive. It is before this cut, so the archive has it or will."""
        self._anchored = True
        self._target = _without_orders(event.record.cut)
        self._held = deque(held for held in self._held if isinstance(held, Changed))
        self._held_bytes = 0
        self._hold(event)

    def _waits_for_offer(self) -> bool:
        archive = self.site.options.recovery is Policy.ARCHIVE
        return archive and self._joined and not self._live and self._done is None

    def _begin(self, start: Vector, now: float) -> None:
        self._done = dict(start)
        self._holes = {publisher: list(spans) for publisher, spans in start.holes.items()}
        self._above(Began(start), now)

    # --- asking ---

    def _ask(self, now: float) -> None:
        options = self.site.options
        self._due = now + 5 * options.again
        archives = self._archives()
        if not archives or not self._anchored:
            return
        if self.site.crowded:  # by us, not by the archive, so its time does not run
            self._due, self._answered = now + options.again / 10, now
            return
        if self._archive not in archives:
            self._archive = archives[self._attempt % len(archives)]
            self._offset = 0
        after = None if self._done is None else Vector(self._done, self._holes)
        self.say(Recover(self._number, after, self._offset), self._archive, now)

    def _ask_bound(self, now: float) -> None:
        archives = self._archives()
        if archives:
            self.say(Doubt(), archives[self._doubts % len(archives)], now)
        self._doubts += 1
        longest = 10 * self.site.options.again if self._bound is None else RARELY
        self._pause = min(2 * self._pause, longest)
        self._doubt_due = now + self._pause

    def tick(self, now: float) -> None:
        if self._doubt_due is not None and now >= self._doubt_due:
            self._ask_bound(now)
        if self._live or self._due is None or now < self._due:
            return
        options = self.site.options
        if now - self._answered >= options.recovery_timeout:
            self._despair(now)
            return
        if now - self._answered >= 10 * options.again:
            self._attempt += 1
            self._archive = None
        self._ask(now)

    def _despair(self, now: float) -> None:
        options = self.site.options
        if options.live_without_archive:
            if self._done is None:
                self._begin(Vector(self._target), now)
            for publisher, last in self._target.items():
                self._pass_over(publisher, last, now)
            self._finish_if_done(now)
            return
        self._due = None
        self.site.failed = True
        reason = (
            f"no archive of the feed has answered for {options.recovery_timeout:g} s: start one, or subscribe "
            "without recovery"
        )
        self.site.effects.append(Failed(reason, recovery=True))

    def deadline(self) -> float | None:
        if self._live or self._due is None:
            return self._doubt_due
        return self._due if self._doubt_due is None else min(self._due, self._doubt_due)

    # --- taking ---

    def _take(self, sender: MemberId, answer: Answer, now: float) -> None:
        self._answered = now
        if self._done is None:
            self._begin(answer.start or Vector(), now)
        for part in answer.batches:
            try:
                self._recover(sender, carried(part), now)
            except Malformed:
                self.site.refused += 1
                return
        self._offset = answer.offset
        if answer.more:
            self._ask(now)
            return
        self._close(sender, answer.reached, now)
        self._due = now + self.site.options.again
        if self._turn_to_another(sender):
            self._ask(now)
            return
        self._finish_if_done(now)

    def _recover(self, sender: MemberId, batch: Batch, now: float) -> None:
        assert self._done is not None
        publisher = batch.publisher
        for part in self._out_of_holes(batch):
            self._above(Messages(part), now)
        last = min(batch.last, self._target.get(publisher, 0))
        if last <= self._done.get(publisher, 0) or last < batch.first:
            return
        if not self._is_lost(sender, publisher, batch.first - 1, now):
            return
        self._above(Messages(batch.part(self._done.get(publisher, 0) + 1, last)), now)
        self._done[publisher] = last
        self._denied.pop(publisher, None)

    def _out_of_holes(self, batch: Batch) -> list[Batch]:
        """The parts of it that were passed over before we began."""
        publisher = batch.publisher
        spans = self._holes.get(publisher)
        if spans is None:
            return []
        parts = [batch.part(*span) for span in within(spans, batch.first, batch.last)]
        self._holes[publisher] = without(spans, batch.first, batch.last)
        if not self._holes[publisher]:
            del self._holes[publisher]
        return parts

    def _close(self, sender: MemberId, reached: dict[bytes, int], now: float) -> None:
        """The archive has told all that it has up to `reached`: what is still missing it does not have."""
        for publisher, wanted in self._target.items():
            self._is_lost(sender, publisher, min(wanted, reached.get(publisher, 0)), now)

    def _is_lost(self, sender: MemberId, publisher: bytes, last: int, now: float) -> bool:
        """An archive lacks what comes next, up to `last`: it is passed over as far as all archives do (S6).
        Whether that is all of it."""
        assert self._done is not None
        if last <= self._done.get(publisher, 0):
            return True
        denied = self._denied.setdefault(publisher, {})
        denied[sender] = last
        agreed = min((denied.get(each, 0) for each in self._archives()), default=0)
        self._pass_over(publisher, agreed, now)
        return self._done.get(publisher, 0) >= last

    def _pass_over(self, publisher: bytes, last: int, now: float) -> None:
        assert self._done is not None
        done = self._done.get(publisher, 0)
        if last > done:
            self._above(Missing(Lost(publisher, done + 1, last)), now)
            self._done[publisher] = last
            self._denied.pop(publisher, None)

    def _archives(self) -> list[MemberId]:
        return self.site.view.archives() if self.site.view is not None else []

    def _turn_to_another(self, sender: MemberId) -> bool:
        """Whether there is an archive that may have what this one lacks; it is asked next."""
        for denied in self._denied.values():
            for archive in self._archives():
                if sender in denied and archive not in denied:
                    self._archive, self._offset = archive, 0
                    return True
        return False

    def _finish_if_done(self, now: float) -> None:
        done = self._done
        assert done is not None
        if any(done.get(publisher, 0) < last for publisher, last in self._target.items()):
            return
        self._live = True
        self._due = None
        self.site.effects.append(Recovered(Vector(done, self._holes)))
        while self._held:
            self._pass(self._held.popleft(), now)
        self._held_bytes = 0

    # --- what comes live ---

    def _hold(self, event: Waiting) -> None:
        self._held.append(event)
        if isinstance(event, Messages):
            self._held_bytes += 200 + len(event.batch.block.data)
        if self._held_bytes > self.site.options.held:
            for held in self._held:
                if isinstance(held, Messages):
                    self._target[held.batch.publisher] = held.batch.last
                elif isinstance(held, Missing):
                    self._target[held.lost.publisher] = held.lost.last
            self._held = deque(held for held in self._held if isinstance(held, Changed))
            self._held_bytes = 0

    def _pass(self, event: Waiting, now: float) -> None:
        """Live, except for what the application's own vector had already."""
        assert self._done is not None
        if isinstance(event, Messages):
            batch = event.batch
            for hole in self._out_of_holes(batch):
                for part in self._marked(hole, now):
                    self._above(Messages(part), now)
            done = self._done.get(batch.publisher)
            if done is not None and batch.first <= done:
                if batch.last <= done:
                    return
                batch = batch.part(done + 1, batch.last)
            for part in self._marked(batch, now):
                self._above(Messages(part), now)
            return
        if isinstance(event, Missing):
            lost = event.lost
            done = self._done.get(lost.publisher, 0)
            if lost.last <= done:
                return
            event = Missing(Lost(lost.publisher, max(lost.first, done + 1), lost.last))
        self._above(event, now)

    def _marked(self, batch: Batch, now: float) -> list[Batch]:
        """S5."""
        if not self._is_marked:
            return [batch]
        last = min(batch.last, self._farthest(batch.publisher, now))
        if last < batch.first:
            return [batch]
        doubtful = batch.part(batch.first, last)
        marked = [msgspec.structs.replace(doubtful, certainty=Certainty.UNCERTAIN)]
        return [*marked, batch.part(last + 1, batch.last)] if last < batch.last else marked

    def _farthest(self, publisher: bytes, now: float) -> int:
        """What earlier lives can have been given of it."""
        if self._bound is None:
            return OPEN
        named = self._bound.get(publisher)
        if named is not None:
            return named
        if self.site.options.ordered or self._is_younger(publisher):
            return 0
        if publisher not in self._unnamed:
            self._unnamed.add(publisher)
            self._pause = self.site.options.again
            self._doubt_due = now
        return OPEN

    def _is_younger(self, publisher: bytes) -> bool:
        """What was under way when it told its age makes it look younger than it is."""
        track = self.reception.tracks[publisher]
        is_later = track.born > self._begun + self.site.options.suspect
        return is_later and self.reception.is_dated(publisher)


def _without_orders(cut: Vector) -> dict[bytes, int]:
    return {p: s for p, s in cut.items() if not p.startswith(ORDERS)}
