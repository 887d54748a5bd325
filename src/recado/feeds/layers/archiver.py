"""ARCHIVER: stores what passes, and gives it to those who missed it.

AR1  What is stored of a publisher follows without gap; where nobody has a message, Lost is stored in its place.
AR2  STABLE is said only of what is durable, with the view that the archive had agreed to.
AR3  Every view that the archive was asked to take part in is recorded before anything is given to those in it.
AR4  Questions that wait for the store are bounded; who gets no answer asks again.

An archive that lacks something learns so from what others call stable, and FIFO, NAK and PULL get it as any
other gap: so archives repair each other. What was recorded as lost they ask each other for now and then, and
store it behind a record of that (Found); messages that an archive's store cannot read any more are recorded as
lost, too. Their records of views they compare now and then, too.
"""

from collections.abc import Sequence

from ..block import Malformed
from ..boundary import (
    ARCHIVES,
    MEMBERS,
    ArchiveState,
    Batch,
    Channel,
    Damaged,
    Entry,
    Query,
    Range,
    Recall,
    Recalled,
    Store,
    Stored,
)
from ..layer import Accepted, Changed, Falling, Heard, Layer, Messages, Missing, Rising, Site
from ..packet import (
    MAX_BATCHES,
    MAX_RECORDS,
    Ack,
    Answer,
    Bound,
    Carried,
    Doubt,
    Known,
    Offer,
    Prepare,
    Pull,
    Pulled,
    Records,
    Recover,
    Stable,
)
from ..table import Standing, Table, weight
from ..vector import MAX_SEQUENCE, Span, Vector, merged, put_within, within, without
from ..views import (
    Acknowledged,
    Certainty,
    Found,
    Lost,
    MemberId,
    Record,
    Role,
    Seat,
    Settled,
    View,
    ViewId,
    ViewRecord,
    is_credible,
)
from ..wire import carried, carry
from .pull import MOST_RANGES
from .reception import Reception
from .settling import Settling
from .uniform import MOST_ARCHIVES
from .window import lacking

MOST_WAITING = 1_000
COMPARE = 10  # beats between comparisons of records


class Question:
    """Of somebody, waiting for the store."""

    __slots__ = ("number", "offset", "ranges", "sender", "standing", "start")

    def __init__(self, sender: MemberId, number: int, ranges: list[Range]) -> None:
        self.sender = sender
        self.number = number
        self.ranges = ranges
        self.start = Vector()
        self.standing: Standing | None = None
        self.offset = 0


class Archiver(Layer):
    def __init__(self, site: Site, reception: Reception, stored: ArchiveState) -> None:
        super().__init__(site)
        self.reception = reception
        self.table = Table([*stored.views, *stored.settled, *stored.acknowledged])
        self.stable = stored.vector
        self.settling = Settling(site, reception, self.table)
        self._others: dict[
            str, dict[bytes, int]
        ] = {}  # what is stable elsewhere, by the archive's name
        self._lost: dict[bytes, list[Span]] = {}
        for lost in stored.lost:
            self._lose(lost)
        self._said: dict[bytes, int] = {}
        self._questions: dict[int, Question] = {}
        self._number = 0
        self._beats = 0
        self._next_beat = 0.0

    # --- storing ---

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Messages(batch):
                self._settle(self.settling.met(batch.publisher, now), now)
                self._store([batch])
            case Missing(lost):
                self._lose(lost)
                self._store([lost])
            case Accepted(record):
                self._record([record])
                self._settle(self.settling.accepted(record.view.id, now), now)
                self._compare(now)
                self._ask_for_lost(now)
                self._above(event, now)
            case Changed(record):
                self._above(event, now)
                self._offer(record, now)
            case Heard(channel, sender):
                self._hear(event, channel, sender, now)
            case _:
                self._above(event, now)

    def _hear(self, event: Heard, channel: Channel, sender: MemberId, now: float) -> None:
        match event.packet:
            case Prepare(round_, invited):
                if self.site.me in invited and round_ not in self.table.views:
                    self._record([self._provisional(round_, invited)])
                if channel is Channel.P:
                    self._settle(self.settling.marked(round_), now)
            case Ack(view, start, vector, final):
                self._record([Acknowledged(sender, view, start, vector, final)])
            case Pull(number, ranges):
                self._ask_store(Question(sender, number, ranges), Query(Vector(), tuple(ranges)))
            case Pulled(_, batches):
                for part in batches:
                    if part.publisher in self._lost:
                        self._find(part)
            case Recover():
                self._recover(sender, event.packet, now)
            case Doubt():
                self._tell_bound(sender, now)
            case Stable(_, vector):
                if sender.name in self._others or len(self._others) < MOST_ARCHIVES:
                    put_within(self._others.setdefault(sender.name, {}), vector)
            case Known():
                self._answer_known(sender, event.packet, now)
            case Records(records):
                self._record([record for record in records if self._is_credible(record)])
            case _:
                self._above(event, now)

    def _provisional(self, round_: ViewId, invited: list[MemberId]) -> ViewRecord:
        seats = tuple(Seat(member, Role.SUBSCRIBER) for member in invited)
        return ViewRecord(View(round_, seats), Vector(), (), provisional=True)

    def _is_credible(self, record: Record) -> bool:
        """What is lost each archive finds out for itself: it would never again take what is said to be."""
        known = self.site.current.number
        match record:
            case ViewRecord(view):
                return is_credible(view.id.number, known)
            case Settled(id_) | Acknowledged(_, id_):
                return is_credible(id_.number, known)
            case Lost() | Found():
                return False

    def _record(self, records: Sequence[Record]) -> None:
        news = [record for record in records if self.table.add(record)]
        if news:
            self._store(news)

    def _settle(self, found: Sequence[Record], now: float) -> None:
        """Record reaches, and tell other archives at once of those that have changed: an archive that has the
        old one from us does not watch it (SE3)."""
        settled = self.table.settled
        before = {id_: settled[id_] for id_ in _views_of(found) if id_ in settled}
        self._record(found)
        changed: list[Record] = [settled[id_] for id_, old in before.items() if settled[id_] != old]
        if changed and len(self._archives()) > 1:
            self.say(Records(changed[-MAX_RECORDS:]), ARCHIVES, now)

    def _store(self, entries: Sequence[Entry]) -> None:
        self.site.effects.append(Store(list(entries)))

    def down(self, event: Falling, now: float) -> None:
        match event:
            case Stored(vector):
                self.stable = vector
                if "UNIFORM" in self.site.names:
                    self._tell_stable(now)
            case Recalled():
                self._recalled(event, now)
            case Damaged(lost):
                for each in lost:
                    self._lose(each)
                self._store(lost)
            case _:
                self._below(event, now)

    # --- telling ---

    def _tell_stable(self, now: float) -> None:
        news = {p: s for p, s in self.stable.items() if self._said.get(p) != s}
        if news and self.site.view is not None:
            self._said.update(news)
            self.say(Stable(self.site.view.id, news), MEMBERS, now)

    def tick(self, now: float) -> None:
        if now < self._next_beat:
            return
        self._next_beat = now + self.site.options.beat
        self._beats += 1
        if self._beats % round(2 * self.site.scale) == 0:
            self._said = {}  # all of it again: some may not have heard
        self._tell_stable(now)
        self._settle(self.settling.tick(now), now)
        if self._beats % COMPARE == 0:
            self._compare(now)
            self._ask_for_lost(now)

    def deadline(self) -> float | None:
        return self._next_beat

    def _compare(self, now: float) -> None:
        view, table = self.site.view, self.table
        if view is None or len(view.archives()) < 2:
            return
        views = [id_ for id_, record in table.views.items() if not record.provisional]
        reaches = list(table.checksums.items())
        acks = [(member, _weight(ack)) for member, ack in table.acknowledged.items()]
        self.say(Known(views, reaches, acks[-MAX_RECORDS:]), ARCHIVES, now)

    def _answer_known(self, sender: MemberId, known: Known, now: float) -> None:
        views, table = set(known.views), self.table
        reaches, acks = dict(known.settled), dict(known.acknowledged)
        news: list[Record] = [
            record
            for id_, record in table.views.items()
            if id_ not in views and not record.provisional
        ]
        # Of two that differ each gets the other's, and has the safer of both.
        news += [
            table.settled[id_] for id_, sum_ in table.checksums.items() if reaches.get(id_) != sum_
        ]
        news += [
            ack for member, ack in table.acknowledged.items() if acks.get(member, -1) < _weight(ack)
        ]
        if news:
            self.say(Records(news[:MAX_RECORDS]), sender, now)

    # --- repairing ---

    def _lose(self, lost: Lost) -> None:
        spans = [*self._lost.get(lost.publisher, ()), (lost.first, lost.last)]
        self._lost[lost.publisher] = merged(spans)

    def _ask_for_lost(self, now: float) -> None:
        """Another archive may have what nobody had who was here then."""
        others = [one for one in self.site.others() if one in self._archives()]
        ranges = [Range(p, *span) for p, spans in self._lost.items() for span in spans]
        if others and ranges:
            turn = self._beats // COMPARE
            begin = turn // len(others) * MOST_RANGES % len(ranges)
            asked = ranges[begin : begin + MOST_RANGES]
            self.say(Pull(0, asked), others[turn % len(others)], now)

    def _archives(self) -> list[MemberId]:
        return self.site.view.archives() if self.site.view is not None else []

    def _find(self, part: Carried) -> None:
        """What of it was recorded as lost is stored behind a record of that: offsets stay as they are."""
        try:
            batch = carried(part)
        except Malformed:
            self.site.refused += 1
            return
        spans = self._lost[batch.publisher]
        for first, last in within(spans, batch.first, batch.last):
            self._store([Found(batch.publisher, first, last), batch.part(first, last)])
            spans = without(spans, first, last)
        self._lost[batch.publisher] = spans
        if not spans:
            del self._lost[batch.publisher]

    def _offer(self, record: ViewRecord, now: float) -> None:
        """The oldest archive begins the recovery of who has returned."""
        archives = record.view.archives()
        if not archives or archives[0] != self.site.me:
            return
        before = [self.table.views[id_] for id_ in record.previous if id_ in self.table.views]
        known = {member for old in before for member in old.view.members()}
        for seat in record.view.seats:
            if seat.role is Role.SUBSCRIBER and seat.member not in known:
                start = self.table.start(seat.member.name, seat.member)
                self.say(Offer(start), seat.member, now)

    # --- answering ---

    def _tell_bound(self, sender: MemberId, now: float) -> None:
        if self.table.knows(sender):
            self._settle(self.settling.tick(now), now)
            bound = self.table.standing(sender.name, sender).bound()
            if bound is not None:
                named = dict.fromkeys(self.settling.acquainted(), 0)
                self.say(Bound(named | dict(bound)), sender, now)

    def _recover(self, sender: MemberId, question: Recover, now: float) -> None:
        if not self.table.knows(sender):
            return
        self._settle(self.settling.tick(now), now)
        waiting = Question(sender, question.number, [])
        after = question.after
        name = sender.name
        waiting.start = self.table.start(name, sender) if after is None else after
        waiting.standing = self.table.standing(name, sender)
        waiting.offset = question.offset
        limit = 1024 * 1024 if self.site.options.packet > 65_536 else 256 * 1024
        query = Query(waiting.start, (), question.offset, limit)
        self._ask_store(waiting, query)

    def _ask_store(self, question: Question, query: Query) -> None:
        self._number += 1
        self._questions[self._number] = question
        if len(self._questions) > MOST_WAITING:
            del self._questions[next(iter(self._questions))]
        self.site.effects.append(Recall(self._number, query))

    def _recalled(self, answer: Recalled, now: float) -> None:
        question = self._questions.pop(answer.number, None)
        if question is None:
            return
        if question.standing is None:
            wanted = [carry(batch) for batch in answer.batches[:MAX_BATCHES]]
            missing = [] if answer.more else self._lacks(question.ranges, answer)
            lost = [each for gap in missing if (each := _up_to(gap, answer.reached)) is not None]
            self.say(Pulled(question.number, wanted, missing, lost), question.sender, now)
            return
        limit = self._uniform_limit(question.sender)
        reached = answer.reached if limit is None else answer.reached.met(limit)
        found: list[Carried] = []
        whole = True
        for batch in answer.batches:
            last = batch.last if limit is None else min(batch.last, limit.get(batch.publisher, 0))
            whole = whole and last == batch.last
            if last < batch.first:
                continue
            found += _classified(batch.part(batch.first, last), question.standing)
            if len(found) > MAX_BATCHES:
                del found[MAX_BATCHES:]
                # What has no room here would be taken for lost if it were said to have been reached.
                carried = {part.publisher: part.first + part.count - 1 for part in found}
                reached, whole = question.start.joined(carried), False
                break
        offset = answer.offset if whole else question.offset
        start = question.start
        packet = Answer(question.number, start, found, offset, answer.more and whole, dict(reached))
        self.say(packet, question.sender, now)

    def _lacks(self, ranges: list[Range], answer: Recalled) -> list[Range]:
        gone: list[Range] = []
        for wanted in ranges:
            here = [batch for batch in answer.batches if batch.publisher == wanted.publisher]
            gone += lacking(wanted, sorted(here, key=lambda batch: batch.first))
        return gone

    def _uniform_limit(self, member: MemberId) -> dict[bytes, int] | None:
        """What enough archives have for this member, which recovers; None if that does not matter. It has begun
        no view yet: UNIFORM demands there as many copies as its first view wants, or the next one, if archives
        were lost with the first."""
        if "UNIFORM" not in self.site.names:
            return None
        views = self.table.views_of(member)[:2]
        if not views:  # it was only asked to be in one, as far as is known here
            return {}
        others = [one for name, one in self._others.items() if name != self.site.me.name]
        stable: list[dict[bytes, int]] = [dict(self.stable), *others]
        copies = min(map(self.site.copies, views))
        every = dict.fromkeys(publisher for one in stable for publisher in one)
        limit = {}
        for publisher in every:
            ranked = sorted((one.get(publisher, 0) for one in stable), reverse=True)
            limit[publisher] = ranked[copies - 1] if len(ranked) >= copies else 0
        return limit


def _up_to(gap: Range, reached: Vector) -> Range | None:
    """The part of it that a log is past which has reached this."""
    last = min(gap.last, reached.of(gap.publisher))
    return Range(gap.publisher, gap.first, last) if gap.first <= last else None


def _views_of(records: Sequence[Record]) -> list[ViewId]:
    return [record.view for record in records if isinstance(record, Settled)]


def _weight(ack: Acknowledged) -> int:
    return min(weight(ack), MAX_SEQUENCE)


def _classified(batch: Batch, standing: Standing) -> list[Carried]:
    parts = []
    for first, last, certainty in standing.split(batch.publisher, batch.first, batch.last):
        # Sent all the same, because the application's own vector asks for it, and it knows best.
        asked = Certainty.UNCERTAIN if certainty is Certainty.DELIVERED else certainty
        part = batch.part(first, last)
        parts.append(carry(Batch(part.publisher, part.first, part.block, part.view, asked)))
    return parts
