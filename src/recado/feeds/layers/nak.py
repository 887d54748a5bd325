"""NAK: finds what is missing and asks the publisher for it again.

N1  A gap is asked for while it lasts: of the publisher, where publishers hear what is cast; then it is left to
    PULL.
N2  Where P is a queue of our own, which may be long, a gap that lasts is marked in it: we cast the question
    and wait until it comes back. By then the message has come, if it was in the queue.
N3  What a publisher keeps for others is bounded, and so is what one question brings of it; of what it keeps no
    more it says so.

A gap shows when something behind it comes, or when a publisher, an archive or a view tells of a message that
is not here.
"""

from collections import deque
from math import inf

from ..boundary import Channel, Range
from ..layer import Falling, Heard, Layer, Rising, Say, Site
from ..packet import HEAD, MAX_RANGES, Data, Fragment, Lack, Last, Nak, Stable
from ..vector import MAX_SEQUENCE
from ..views import MemberId
from .reception import ORDERS, Reception, concerns
from .track import Gap

OF_A_RANGE = 40  # bytes in a packet, at most; the list of them takes a few more


class NakPublisher(Layer):
    """Keeps what was cast lately, and casts it again for who asks."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._kept: deque[tuple[int, int, int, Say]] = deque()  # first, last, size
        self._size = 0

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Say) and not self.site.options.ordered:
            match event.packet:
                case Data(_, first, block):
                    self._keep(first, event.number, len(block.data), event)
                case Fragment(_, sequence, _, _, piece):
                    self._keep(sequence, sequence, len(piece), event)
                case _:
                    pass
        self._below(event, now)

    def _keep(self, first: int, last: int, size: int, said: Say) -> None:
        self._kept.append((first, last, size, said))
        self._size += size
        while self._size > self.site.options.window and len(self._kept) > 1:
            self._size -= self._kept.popleft()[2]

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Heard(Channel.P, _, Nak(ranges)):
                me = self.site.me.incarnation
                ours = [each for each in ranges if each.publisher == me]
                self._repeat([each for each in ours if each.first <= each.last], now)
            case _:
                self._above(event, now)

    def _repeat(self, ranges: list[Range], now: float) -> None:
        """Each packet once, however often it is asked for: a few bytes must not bring all that is kept many
        times."""
        wanted = deque(sorted((each.first, each.last) for each in ranges))
        oldest = self._kept[0][0] if self._kept else MAX_SEQUENCE
        if wanted and wanted[0][0] < oldest:
            last = max(last for first, last in wanted if first < oldest)
            lack = Lack(self.site.me.incarnation, wanted[0][0], min(last, oldest - 1))
            self.say(lack, None, now)
        upto = 0
        for first, last, _, said in self._kept:
            while wanted and wanted[0][0] <= last:
                upto = max(upto, wanted.popleft()[1])
            if first <= upto:
                self._below(said, now)
            elif not wanted:
                break


class NakMember(Layer):
    def __init__(self, site: Site, reception: Reception) -> None:
        super().__init__(site)
        self.reception = reception
        self._due: float | None = None
        self._flowed = 0.0  # when messages last came on P

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Heard(Channel.P):
                self._hear(event, now)
            case Heard(_, sender, Stable(_, vector)):
                if not self.reception.fresh:
                    for publisher, last in vector.items():
                        if self._may_miss(publisher, sender):
                            self.reception.learn(publisher, last, now)
                self._above(event, now)
            case _:
                self._above(event, now)

    def _hear(self, event: Heard, now: float) -> None:
        match event.packet:
            case Data() | Fragment():
                self._flowed = now
                self._above(event, now)
            case Last(publisher, last, age, earlier):
                if concerns(self.site, publisher):
                    past = [(now - ago / 1000, told) for ago, told in earlier]
                    self.reception.tell(publisher, last, age / 1000, now, past)
                    self._above(event, now)
            case Lack(publisher, first, last):
                gap = self.reception.gaps.get(publisher)
                if gap is not None and first <= gap.at <= last:
                    gap.lacking[publisher] = ([(first, last)], inf)  # for good
            case Nak(ranges):
                if event.sender == self.site.me:
                    self._pass(ranges)
            case _:
                self._above(event, now)

    def _may_miss(self, publisher: bytes, sender: MemberId) -> bool:
        """Whether messages that an archive has of this publisher may be missing here. An archive outside the
        view may have messages from before our time (RE4); the cut of the view that it joins covers them."""
        reception = self.reception
        if reception.since is None:
            return True
        if publisher not in reception.tracks:
            return False
        return not reception.is_assumed(publisher) or sender in self.site.others()

    def _pass(self, ranges: list[Range]) -> None:
        for each in ranges:
            gap = self.reception.gaps.get(each.publisher)
            if gap is not None and gap.at == each.first:
                gap.is_passed = True

    def tick(self, now: float) -> None:
        due = self.deadline()
        if due is None or now < due:
            return
        options = self.site.options
        ranges: list[Range] = []
        for publisher, gap in self.reception.gaps.items():
            gap.tries += 1
            if self._is_for_others(publisher, gap, now):
                gap.pull = True
            if options.ordered:
                lasts = now - gap.since >= options.patience / 2
                if lasts and not gap.is_passed and gap.tries % 5 == 0:
                    ranges += self.reception.missing(publisher, 1)
            elif gap.tries <= 3 or gap.tries % 5 == 0:
                ranges += self.reception.missing(publisher, 64)
        if ranges:
            # Nobody cuts it into pieces, so each has to fit.
            room = (options.packet - HEAD) // OF_A_RANGE - 1
            asked = ranges[:MAX_RANGES]
            for i in range(0, len(asked), room):
                self.say(Nak(asked[i : i + room]), None, now)
        self._due = now + options.again if self.reception.gaps else None

    def _is_for_others(self, publisher: bytes, gap: Gap, now: float) -> bool:
        options = self.site.options
        if not options.ordered:
            return publisher.startswith(ORDERS) or gap.tries > 3
        # What we only heard of is probably on its way in our own queue, which may be long.
        silent = now - self._flowed >= options.suspect / 2
        return (
            self.reception.is_inside(publisher) or silent or now - gap.since >= options.patience / 2
        )

    def deadline(self) -> float | None:
        gaps = self.reception.gaps
        if self._due is None and gaps:
            # A little later: on most networks what is missing has only been overtaken.
            self._due = min(gap.since for gap in gaps.values()) + self.site.options.again / 4
        return self._due
