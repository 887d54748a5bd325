"""REACH: who takes part. Members tell that they live; who is silent is left out; all agree on each view.

A view is made in three steps. The oldest member that lives coordinates: PREPARE asks everybody to stop
delivering; each answers PREPARED with what it has received; VIEW then names the members and the cut, the
largest of what anybody has. Each member lets pass what is before the cut, as soon as it has it, and is in the
view. Nobody waits for another to do so.

RC1  Numbers of views grow, for each member and along every line of views that follow each other.
RC2  A member has promised itself to one round at a time, the highest that asked it, and takes the VIEW of that
     round only; and none after it gave the promise up, because by then it has delivered behind what it had
     said.
RC3  Between the promise and the view, or its giving up, nothing passes.
RC4  The oldest member that one hears coordinates. After a partition, the oldest of all makes one view of the
     groups.
RC5  Who did not answer is left out, and asked again only after a while, or when it has come to another view by
     itself; so that one who cannot answer stops nobody.
RC6  A view is called complete only if all who were asked are in it, none of them hears anybody else, and one of
     them has listened for `suspect`. While a view with an archive is not, another one follows.
RC7  Silence counts only while one listens: `now` leaves out the time in which a member was stalled, and it has
     then not listened for long. Who is new in a view hears others for `suspect` before it takes them for
     failed. Who heard nothing at all, of publishers neither, may have been deaf, and
     has not listened.
RC8  A subscriber without recovery begins behind all that was published before it. Where publishers cast again
     what others lack, it keeps quiet until it has heard what each of them has published: what is published
     when it has joined is then surely behind that.
"""

from itertools import islice

from ..boundary import MEMBERS, Left
from ..layer import Accepted, Falling, Heard, Layer, Rising, Site, Thawed
from ..packet import Beat, NewView, Outlook, Prepare, Prepared
from ..vector import Vector, raise_to
from ..views import (
    MAX_MEMBERS,
    NO_VIEW,
    MemberId,
    Role,
    Seat,
    View,
    ViewId,
    ViewRecord,
    is_credible,
)
from .reception import MOST_ORDERS, QUIET, Reception


class Peer:
    """Another member, as it was last heard."""

    __slots__ = ("heard", "leaving", "role", "shy", "since", "view")

    def __init__(self, beat: Beat, now: float) -> None:
        self.shy = 0.0  # not to be invited before
        self.view = beat.view
        self.update(beat, now)

    def is_as_before(self, beat: Beat) -> bool:
        return self.view == beat.view and self.since == beat.since and self.leaving == beat.leaving

    def update(self, beat: Beat, now: float) -> None:
        if beat.view != self.view:
            self.shy = 0.0
        self.role = beat.role
        self.view = beat.view
        self.since = beat.since
        self.leaving = beat.leaving
        self.heard = now


class Round:
    """A view that we are making."""

    __slots__ = ("answers", "begun", "id", "invited", "repeat")

    def __init__(self, id_: ViewId, invited: list[MemberId], now: float) -> None:
        self.id = id_
        self.invited = invited
        self.begun = now
        self.repeat = now
        self.answers: dict[MemberId, Prepared] = {}


class Promise:
    """A view that somebody is making, and that we wait for."""

    __slots__ = ("answer", "begun", "repeat", "to")

    def __init__(self, to: MemberId, answer: Prepared, now: float) -> None:
        self.to = to
        self.answer = answer
        self.begun = now
        self.repeat = now


class Reach(Layer):
    def __init__(self, site: Site, reception: Reception, last: ViewId) -> None:
        super().__init__(site)
        self.reception = reception
        self.peers: dict[MemberId, Peer] = {}
        self._view_id = last
        self._since = 0
        self._number = last.number
        self._promised = last
        self._promise: Promise | None = None
        self._round: Round | None = None
        self._decided: NewView | None = None
        self._view_at = 0.0
        self._complete = False
        self._alone = True  # in every view so far
        self._begun = 0.0
        self._attended = 0.0
        self._heard = 0.0  # somebody
        self._listening = 0.0  # since when
        self._next_beat = 0.0
        self._quiet_until = 0.0
        self._next_round = 0.0
        self._next_completion = 0.0

    def start(self, now: float) -> None:
        self._begun = self._attended = self._heard = self._listening = now
        options = self.site.options
        if self.reception.since is not None and not options.ordered:
            self._quiet_until = now + QUIET * options.beat
        self._beat(now)

    # --- hearing ---

    def up(self, event: Rising, now: float) -> None:
        if not isinstance(event, Heard):
            self._above(event, now)
            return
        self._attended = now
        if event.sender != self.site.me:
            if not self._is_hearing(now):
                self._listening = now
            self._heard = now
        match event.packet:
            case Beat(_, view) | Prepare(view) if not is_credible(view.number, self._number):
                self.site.refused += 1
            case Beat() as beat:
                self._hear(event.sender, beat, now)
            case Prepare(round_, invited):
                self._consider(event.sender, round_, invited, now)
                self._above(event, now)
            case Prepared() as answer:
                self._collect(event.sender, answer, now)
            case NewView() as new:
                self._accept(new, now)
            case _:
                self._above(event, now)

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Left):
            self.say(Beat(self.site.role, self._view_id, self._since, True), MEMBERS, now)
        self._below(event, now)

    def _hear(self, sender: MemberId, beat: Beat, now: float) -> None:
        self._number = max(self._number, beat.view.number)
        peer = self.peers.get(sender)
        if peer is not None and peer.is_as_before(beat) and beat.view == self._view_id:
            peer.heard = now  # whether others are silent is looked at with our own beat
            return
        view = self.site.view
        if not beat.leaving and (view is None or sender not in view.members()):
            self.site.outsider = now
        if peer is None:
            if not beat.leaving and len(self.peers) < MAX_MEMBERS - 1:
                self.peers[sender] = Peer(beat, now)
                self._beat(now)  # so that it knows of us at once
        else:
            peer.update(beat, now)
        self._coordinate(now)

    def stall(self, seconds: float) -> None:
        """RC7: what was said meanwhile may be lost. The loop has run again within a beat."""
        if seconds > self.site.options.suspect / 2:
            self._listening = self._attended + self.site.options.beat

    # --- promising ---

    def _consider(
        self, sender: MemberId, round_: ViewId, invited: list[MemberId], now: float
    ) -> None:
        self._number = max(self._number, round_.number)
        promise = self._promise
        if promise is not None and promise.answer.round == round_:
            if sender != self.site.me:
                self.say(promise.answer, promise.to, now)
        elif self.site.me in invited and round_ > self._promised:
            if sender != self.site.me:
                self._round = None
            self._give(sender, round_, invited, now)

    def _give(self, to: MemberId, round_: ViewId, invited: list[MemberId], now: float) -> None:
        """Stop delivering, and say what we have."""
        self._promised = round_
        self.reception.freeze()
        vector = self.reception.received()
        site = self.site
        # In a view of its own a subscriber has seen nobody of whom an archive would want to know.
        unseen = self._alone and site.role is not Role.ARCHIVE
        view = NO_VIEW if unseen else self._view_id
        outlook = self._outlook(invited, now)
        answer = Prepared(round_, site.role, view, self._since, vector, outlook)
        self._promise = Promise(to, answer, now)
        if to == site.me:
            self._collect(to, answer, now)
        else:
            self.say(answer, to, now)

    def _outlook(self, invited: list[MemberId], now: float) -> Outlook:
        names = {member.name for member in invited}
        others = [m for m, peer in self.peers.items() if self._lives(peer, now)]
        if any(member.name not in names for member in others):  # a name that is back counts once
            return Outlook.OTHERS
        return Outlook.CLEAR if self._has_listened(now) else Outlook.SHORT

    def _is_hearing(self, now: float) -> bool:
        return now - self._heard <= self.site.options.suspect / 2

    def _has_listened(self, now: float) -> bool:
        return self._is_hearing(now) and now - self._listening >= self.site.options.suspect

    def _give_up(self, now: float) -> None:
        self._promise = None
        self._above(Thawed(), now)

    def _accept(self, new: NewView, now: float) -> None:
        view, promise = new.view, self._promise
        if promise is None or promise.answer.round != view.id or len(new.since) != len(view.seats):
            return
        seats = dict(zip(view.members(), new.since, strict=True))
        if self.site.me not in seats:
            return
        self._promise = None
        self._view_id = view.id
        self._view_at = now
        self._complete = new.complete
        self._alone = self._alone and len(seats) == 1
        self._number = max(self._number, view.id.number)
        self._since = seats[self.site.me]
        self.site.view = view
        for seat, since in zip(view.seats, new.since, strict=True):
            if seat.member not in self.peers and seat.member != self.site.me:
                self.peers[seat.member] = Peer(Beat(seat.role, view.id, since), now)
        self._beat(now)
        record = ViewRecord(view, Vector(new.cut), tuple(new.previous), complete=new.complete)
        self._above(Accepted(record), now)

    # --- coordinating ---

    def _coordinate(self, now: float) -> None:
        """Begin a round if the view is not as it should be, and it is ours to see to."""
        options = self.site.options
        if self._round is not None or self._promise is not None or now < self._next_round:
            return
        if self._view_id == NO_VIEW and now < self._begun + 2 * options.beat:
            return
        living = {m: peer for m, peer in self.peers.items() if self._lives(peer, now)}
        mine = (self._since or self._number + 1, self.site.me)
        for member, peer in living.items():
            if (peer.since or self._number + 1, member) < mine:
                return
        view = self.site.view
        seated = set(view.members()) if view is not None else set()
        wanted = [m for m, peer in living.items() if peer.shy <= now]
        fresh_view = now < self._view_at + 2 * options.flush
        astray = [
            m
            for m in wanted
            if living[m].view != self._view_id and not (m in seated and fresh_view)
        ]
        failed = seated - {self.site.me} - living.keys()
        if view is None or astray or failed or self._is_to_be_completed(view, living, now):
            self._open([self.site.me, *wanted], now)

    def _is_to_be_completed(self, view: View, living: dict[MemberId, Peer], now: float) -> bool:
        """Whether archives would learn from another view that all others are silent."""
        if self._complete or now < self._next_completion or not view.archives():
            return False
        members = set(view.members())
        return self._has_listened(now) and all(member in members for member in living)

    def _lives(self, peer: Peer, now: float) -> bool:
        return not peer.leaving and now - peer.heard < self.site.options.suspect

    def _open(self, invited: list[MemberId], now: float) -> None:
        self._number += 1
        self._round = Round(ViewId(self._number, self.site.me.incarnation), invited, now)
        prepare = Prepare(self._round.id, invited)
        # On P too: there an archive sees its place among the messages.
        self.say(prepare, None, now)
        self.say(prepare, MEMBERS, now)
        self._give(self.site.me, self._round.id, invited, now)

    def _collect(self, sender: MemberId, answer: Prepared, now: float) -> None:
        round_ = self._round
        if round_ is None or answer.round != round_.id:
            decided = self._decided
            if decided is not None and answer.round == decided.view.id:
                self.say(decided, sender, now)
        elif sender in round_.invited:
            round_.answers[sender] = answer
            if len(round_.answers) == len(round_.invited):
                self._decide(round_, now)

    def _decide(self, round_: Round, now: float) -> None:
        options = self.site.options
        self._round = None
        self._next_round = now + options.again
        self._next_completion = now + options.suspect if self._has_listened(now) else 0.0
        for member in round_.invited:
            if member not in round_.answers and member in self.peers:
                self.peers[member].shy = now + 2 * options.suspect
        number = round_.id.number
        cut: dict[bytes, int] = {}
        for answer in round_.answers.values():
            raise_to(cut, answer.vector)
        # Groups that meet may have more together than anybody follows; the oldest member's come first.
        cut = dict(islice(cut.items(), self.reception.most + MOST_ORDERS))
        order = sorted(round_.answers, key=lambda m: (round_.answers[m].since or number, m))
        seats = tuple(Seat(member, round_.answers[member].role) for member in order)
        since = [round_.answers[member].since or number for member in order]
        previous = sorted({a.view for a in round_.answers.values()} - {NO_VIEW})
        outlooks = {answer.outlook for answer in round_.answers.values()}
        complete = (
            len(round_.answers) == len(round_.invited)
            and Outlook.OTHERS not in outlooks
            and Outlook.CLEAR in outlooks
        )
        self._decided = NewView(View(round_.id, seats), since, cut, previous, complete)
        self.say(self._decided, MEMBERS, now)
        self._accept(self._decided, now)

    # --- time ---

    def _beat(self, now: float) -> None:
        self._next_beat = now + self.site.options.beat
        if now >= self._quiet_until:
            self.say(Beat(self.site.role, self._view_id, self._since), MEMBERS, now)
        else:
            self._next_beat = self._quiet_until

    def tick(self, now: float) -> None:
        options = self.site.options
        self._attended = now
        if now >= self._next_beat:
            self._beat(now)
        promise, round_ = self._promise, self._round
        if round_ is not None:
            if now >= round_.begun + options.flush:
                self._decide(round_, now)
            elif now >= round_.repeat + options.again:
                round_.repeat = now
                for member in round_.invited:
                    if member not in round_.answers:
                        self.say(Prepare(round_.id, round_.invited), member, now)
        elif promise is not None:
            # Longer than the coordinator waits, or its view would come to those who have gone on.
            if now >= promise.begun + 3 * options.flush:
                self._give_up(now)
            elif now >= promise.repeat + options.again:
                promise.repeat = now
                self.say(promise.answer, promise.to, now)
        for member, peer in list(self.peers.items()):
            if now - peer.heard > 10 * options.suspect or peer.leaving:
                self._part(member)
        self._coordinate(now)

    def _part(self, member: MemberId) -> None:
        """Forget who is gone, once it is in no view of ours."""
        view = self.site.view
        if view is None or member not in view.members():
            del self.peers[member]

    def deadline(self) -> float | None:
        options = self.site.options
        due = self._next_beat
        if self._round is not None:
            due = min(due, self._round.repeat + options.again)
        elif self._promise is not None:
            due = min(due, self._promise.repeat + options.again)
        elif self._next_round > self._attended:
            due = min(due, self._next_round)
        return due
