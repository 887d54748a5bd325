"""FIFO: the messages of a publisher pass in their order, each once.

F1  Above FIFO the sequences of a publisher follow each other without gap or double; where nobody has a message,
    Missing stands in its place.
F2  A view passes when everything before its cut has passed, and nothing behind the cut passes before it.
F3  A gap is closed only when three conditions hold: it has waited for `patience` (RE7); no program outside the
    view that might have the message was heard during that time; every member of the view then reported that it
    lacks the message. On a broker, the member's own queue must be past the message as well. Messages published
    before the feed had an archive do not wait for absent members.
F5  A subscriber with recovery closes a gap only if there are archives in its view and the logs of all of them
    are past it: else an archive that is away may have the message, and is waited for.
F4  A subscriber without recovery begins behind the cut of the first view that it shares, with whom it has not
    heard yet. Those in it may lag: it passes nothing of that publisher until it has heard it, which says
    whether what is behind the cut is older than the subscriber. So it is later with a publisher that is new to
    it, if members join its view who may know it from before: an archive that returns knows all that ever
    published. Where it began with a publisher that only others had heard, the cut of each later view moves that
    beginning until a message of the publisher has come (RE4).
F6  Without REACH there is no view to wait for: the subscriber is live from the start (RE6).
"""

from collections import deque
from collections.abc import Mapping
from math import inf

from ..block import EMPTY, KEY, SAME
from ..boundary import Batch, Channel, Failed, Policy, Publish, Recovered
from ..layer import (
    Accepted,
    Changed,
    Falling,
    Filled,
    Heard,
    Layer,
    Messages,
    Met,
    Missing,
    Part,
    Pieces,
    Rising,
    Say,
    Site,
    Thawed,
)
from ..packet import Data, Fragment, Last
from ..vector import MAX_SEQUENCE, Vector
from ..views import Lost, MemberId, Role, ViewRecord
from .reception import ORDERS, Reception, concerns, order_id
from .track import Gap, Item


class Numbering(Layer):
    """In a publisher: gives out the sequences."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.published = site.options.resumed

    def down(self, event: Falling, now: float) -> None:
        me = self.site.me.incarnation
        match event:
            case Publish(block):
                first = self.published + 1
                self.published += block.count
                column = block.column(KEY)
                key = column.data.decode(errors="replace") if column.mode in (SAME, EMPTY) else ""
                self._below(Say(Data(me, first, block), None, key, self.published), now)
            case Pieces(pieces):
                self.published += 1
                for i, piece in enumerate(pieces):
                    part = Fragment(me, self.published, i, len(pieces), piece)
                    self._below(Say(part, None, "", self.published), now)
            case _:
                super().down(event, now)


class Fifo(Layer):
    def __init__(self, site: Site, reception: Reception, begun: Vector | None) -> None:
        super().__init__(site)
        self.reception = reception
        self._pending: ViewRecord | None = None
        self._looked = 0.0
        self._outbox: deque[Item | Lost | Met] = deque()
        self._busy = False
        self._alone = True
        self._seated: set[MemberId] = set()  # in the last view
        self._foreign: set[bytes] = (
            set()
        )  # publishers known to those only, perhaps, who have joined
        self._before: Mapping[bytes, int] = {}
        """In a feed's first archive, until it is in its first view: what was published before its time."""
        if begun is not None:
            reception.begin(begun, 0.0)
            reception.limit = None
        if "REACH" not in site.names:
            reception.begin_without_views()

    def start(self, now: float) -> None:
        if not self.reception.has_views:
            self.site.effects.append(Recovered(Vector()))
        elif self.site.role is Role.SUBSCRIBER and self.site.options.recovery is Policy.NONE:
            self.reception.since = now

    def stall(self, seconds: float) -> None:
        self.reception.stall(seconds)

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Heard(Channel.P):
                self._hear(event, now)
            case Accepted(record):
                self._above(event, now)
                self._turn(record, now)
            case Thawed():
                if not self.reception.fresh:
                    pending = self._pending
                    self.reception.thaw(None if pending is None else dict(pending.cut))
                    self._release(now)
                    self._hand_up(now)
            case _:
                self._above(event, now)

    def _hear(self, event: Heard, now: float) -> None:
        match event.packet:
            case Data(publisher, first, block):
                self._take(Batch(publisher, first, block), now)
            case Fragment(publisher, sequence, index, total, piece):
                self._take(Part(publisher, sequence, index, total, piece), now)
            case Last(publisher) if publisher in self.reception.strangers:
                if self.reception.can_begin_with(publisher):
                    self._get_acquainted(publisher, now)
                    self._hand_up(now)
            case Last():
                pass
            case _:
                self._above(event, now)

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Filled):
            self._take(event.batch, now)
        else:
            self._below(event, now)

    def _turn(self, record: ViewRecord, now: float) -> None:
        """A view is agreed to: let pass what is before its cut."""
        reception = self.reception
        first = reception.fresh
        if first:
            # A new archive copies all that there is: from other archives, or else what members still keep.
            is_archive = self.site.role is Role.ARCHIVE
            reception.begin(Vector() if is_archive else record.cut, now)
            if record.view.archives() == [self.site.me]:
                self._before = record.cut
        reception.skip_orders(record.cut, order_id(self.site.current), now)
        if reception.since is not None:
            self._meet_at(record, first, now)
        for publisher, sequence in record.cut.items():
            reception.learn(publisher, sequence, now)
        reception.thaw(dict(record.cut))
        self._pending = record
        self._release(now)
        self._hand_up(now)

    def _meet_at(self, record: ViewRecord, first: bool, now: float) -> None:
        """Publishers whom the others know (F4). In our first view we have begun behind its cut with all."""
        reception = self.reception
        self._outbox += [Met(*moved) for moved in reception.move_assumed(record.cut, now)]
        joining = self._alone
        seated, self._seated = self._seated, set(record.view.members())
        self._alone = self._alone and len(record.view.seats) == 1
        known = reception.sworn if first else reception.tracks.keys() - reception.strangers
        every = reception.tracks if first else record.cut
        for publisher in [p for p in every if p not in known and not p.startswith(ORDERS)]:
            sequence = record.cut.of(publisher)
            track = reception.tracks.get(publisher)
            if publisher in self._foreign:
                continue
            if track is None and not joining:
                if self._seated - seated and reception.admits(publisher, now):
                    self._foreign.add(publisher)
                    reception.estrange(publisher, 0, now)
            elif track is not None and track.next == 1 and not joining:
                self._begin_with(publisher, 0, now)
            elif reception.admits(publisher, now) and (track is not None or joining):
                if track is None or track.next <= sequence:
                    self._outbox.append(Met(publisher, sequence))
                reception.estrange(publisher, sequence, now)

    def _get_acquainted(self, publisher: bytes, now: float) -> None:
        """Begin with a stranger that was heard, or has not told its age for long."""
        reception = self.reception
        last = reception.beginning(publisher)
        self._begin_with(publisher, last, now)
        self._outbox += reception.release(publisher, now)

    def _begin_with(self, publisher: bytes, last: int, now: float) -> None:
        self._foreign.discard(publisher)
        self.reception.begin_with(publisher, last, now)
        if last:
            self._outbox.append(Met(publisher, last))

    def _take(self, item: Item, now: float) -> None:
        if not concerns(self.site, item.publisher):
            return
        reception, publisher = self.reception, item.publisher
        self._outbox += reception.take(item, now)
        if publisher in reception.strangers and reception.can_begin_with(publisher):
            self._get_acquainted(publisher, now)
        self._hand_up(now)

    def _release(self, now: float) -> None:
        for publisher in list(self.reception.tracks):
            self._outbox += self.reception.release(publisher, now)

    def _hand_up(self, now: float) -> None:
        """What may pass, in order. What a layer above gives us meanwhile waits for its turn (F1, F2)."""
        if self._busy:
            return
        self._busy = True
        while True:
            if self._outbox:
                self._above(self._risen(self._outbox.popleft()), now)
            elif (record := self._reached_view()) is not None:
                self._pending, self._before = None, {}
                self.site.current = record.view.id
                self.reception.limit = None
                self._above(Changed(record), now)
                reception = self.reception
                for publisher in sorted(filter(reception.can_begin_with, reception.strangers)):
                    self._get_acquainted(publisher, now)
                self._release(now)
            else:
                break
        self._busy = False

    def _reached_view(self) -> ViewRecord | None:
        """The pending view, if it begins now. After a promise to the next one it does not (RC3): messages that
        came since would pass, and no cut covers them. It begins when the promise is given up, or never."""
        record, reception = self._pending, self.reception
        if record is None or reception.is_frozen or not reception.reaches(record.cut):
            return None
        return record

    def _risen(self, item: Item | Lost | Met) -> Rising:
        match item:
            case Batch(publisher, first, block):
                return Messages(Batch(publisher, first, block, self.site.current))
            case Lost():
                return Missing(item)
            case Part() | Met():
                return item

    def tick(self, now: float) -> None:
        self._looked = now
        for publisher, waits in list(self.reception.waiting.items()):
            if now >= waits + self.site.options.suspect:
                self._get_acquainted(publisher, now)
        for publisher in list(self.reception.gaps):
            while self._close(publisher, now):
                pass
        self._hand_up(now)

    def _close(self, publisher: bytes, now: float) -> bool:
        """Pass over the first gap of this publisher if that is allowed (F3, F5); returns whether it was."""
        gap = self.reception.gaps.get(publisher)
        if gap is None:
            return False
        most = MAX_SEQUENCE
        if now < self._closes(gap):
            most = self._before.get(publisher, 0)
            if gap.at > most:
                return False
        last = min(most, self._nobody_has(publisher, now))
        if last and self._waits_for_archives(publisher):
            last = min([last, *self._passed_by_archives(gap)])
            if not last and self._has_waited(gap, now):
                self._fail(publisher, gap)
        lost = self.reception.close(publisher, last, now) if last else None
        if lost is None:
            return False
        self._outbox.append(lost)
        self._outbox += self.reception.release(publisher, now)
        following = self.reception.gaps.get(publisher)
        if following is not None:
            following.pull = gap.pull  # members were asked for both
        return True

    def _waits_for_archives(self, publisher: bytes) -> bool:
        """F5. Without PULL nobody can tell."""
        site, options = self.site, self.site.options
        recovers = site.role is Role.SUBSCRIBER and options.recovery is not Policy.NONE
        if not recovers or options.live_without_archive or publisher.startswith(ORDERS):
            return False
        return "PULL" in site.names

    def _passed_by_archives(self, gap: Gap) -> list[int]:
        """Up to where each archive of the view says that it is lost; 0 for one that does not."""
        archives = self.site.view.archives() if self.site.view is not None else []
        return [gap.passed_by(archive.incarnation) for archive in archives] or [0]

    def _has_waited(self, gap: Gap, now: float) -> bool:
        timeout = self.site.options.gap_timeout
        return timeout is not None and now >= gap.since + timeout

    def _fail(self, publisher: bytes, gap: Gap) -> None:
        self.site.failed = True
        reason = (
            f"message {gap.at} of publisher {publisher.hex()} is missing: nobody present has it, and for "
            f"{self.site.options.gap_timeout:g} s (gap_timeout) no archive has said that it is lost; start the "
            "archives, then subscribe again"
        )
        self.site.effects.append(Failed(reason, recovery=True))

    def _closes(self, gap: Gap) -> float:
        """Not before then (F3)."""
        return max(gap.since, self.site.outsider) + self.site.options.patience

    def _nobody_has(self, publisher: bytes, now: float) -> int:
        """Up to where everybody who could have the missing messages says not to, now that it is time; 0 if not
        known. A message that is on its way to us may have been on its way to them when they said so before."""
        site, gap = self.site, self.reception.gaps[publisher]
        track = self.reception.tracks[publisher]
        asked = [m.incarnation for m in site.others()] if "PULL" in site.names else []
        silent = now - track.heard >= site.options.suspect
        if not site.options.ordered and not silent:
            asked.append(publisher)
        in_time = now >= self._closes(gap)
        if in_time and site.options.ordered and not gap.is_passed:
            return 0
        due = self._closes(gap) if in_time else -inf
        said = [gap.lacks(one) for one in asked]
        if any(not upto or at < due for upto, at in said):
            return 0
        _, last = next(track.missing())
        return min([last, *(upto for upto, _ in said)])

    def deadline(self) -> float | None:
        gaps, waiting, options = self.reception.gaps, self.reception.waiting, self.site.options
        due = min(waiting.values()) + options.suspect if waiting else inf
        if gaps:
            closing = -inf if self._before else min(map(self._closes, gaps.values()))
            due = min(due, max(closing, self._looked + options.again))
        return due if due < inf else None
