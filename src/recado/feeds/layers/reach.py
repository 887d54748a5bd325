"""REACH: membership. Members send heartbeats; a silent member is left out; all members agree on each view.

A view is made in three steps. The coordinator, the oldest member that lives, sends PREPARE: everybody stops
delivering. Each member answers PREPARED with what it has received. VIEW then names the members and the cut,
the largest of what any of them has. Each member lets pass what is before the cut, as soon as it has it, and is
in the view. No member waits for another to do so.

Heartbeats go through the coordinator, so that their number grows with the group and not with its square:

    the core        the coordinator and the next DEPUTIES members by age: they hear each other every `beat`
    other members   send theirs to the coordinator; archives every `beat`, subscribers the more rarely the
                    larger the group is (`_scale`)
    coordinator     is heard by the core every `beat`, by all members as often as it hears them
    newcomers       call the core every `beat`; the coordinator answers, and asks them to the next view. One
                    that gets no answer listens to such calls itself, and so becomes the first coordinator

PREPARE, PREPARED and VIEW say only what differs from the view that the coordinator and the receiver are in; a
receiver that is in another view is sent the whole.

RC1  Numbers of views grow, for each member and along every line of views that follow each other.
RC2  A member has promised itself to one round at a time, the highest that asked it, and takes the VIEW of that
     round only; and none after it gave the promise up, because by then it has delivered behind what it had
     said.
RC3  Between the promise and the view, or its giving up, nothing passes.
RC4  The oldest member that one hears coordinates. A member outside the core takes over only after all older
     ones had the time to (`_limit`). After a partition, the oldest coordinator makes one view of the groups:
     members that hear an older coordinator than theirs tell it that they live.
RC5  A member that did not answer is left out, and asked again only after a while, or when it has come to
     another view by itself; so that one that cannot answer stops nobody.
RC6  A view is called complete only if all who were asked are in it, none of them hears anybody else, and one
     that hears all members, and whoever calls them, has listened for `suspect`. While a view with an archive is
     not complete, another one follows.
RC7  Silence counts only while one listens: `now` leaves out the time in which a member was stalled, and it has
     then not listened for long. A member that is new in a view, or has just become its coordinator, hears
     others for `suspect` before it takes them for failed. One that heard nothing at all, of publishers neither,
     may have been deaf, and has not listened.
RC8  A subscriber without recovery begins behind all that was published before it. Where publishers cast again
     what others lack, it keeps quiet until it has heard what each of them has published: what is published
     when it has joined is then surely behind that.
RC9  A member that lives is heard by every coordinator in its reach: one that is in no view calls the core, one
     that coordinates calls all, and one that hears a coordinator of another view tells it that it lives. So a
     coordinator that has listened for `suspect` knows whoever else there is. A subscriber that is alone in its
     view and hears an older coordinator calls that one only; its views are not complete meanwhile.
RC10 Members that wait do not slow down the member that they wait for: requests are repeated after twice as long
     each time, a coordinator calls all members at most once for each `beat`, and a round goes on while answers
     come. So a machine that is overloaded delays joining and does not prevent it.
"""

from collections.abc import Iterable
from itertools import islice
from math import log2
from zlib import crc32

from ..boundary import COORDINATORS, MEMBERS, Left, Listen
from ..layer import Accepted, Falling, Heard, Layer, Rising, Site, Thawed
from ..packet import Beat, NewView, NextView, Outlook, Prepare, Prepared, Roll
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
from .agreement import Agreement, joined_whole
from .reception import MOST_ORDERS, QUIET, Reception

MOST_FAILURES = 4  # that make the pause between rounds longer, twice each time
DEPUTIES = 4  # that hear each other fail with the coordinator: more than fail at once by chance


class Peer:
    """Another member, as it was last heard."""

    __slots__ = ("follows", "heard", "leads", "leaving", "limit", "role", "shy", "since", "view")

    def __init__(self, beat: Beat, now: float, limit: float) -> None:
        self.shy = 0.0  # not to be invited before
        self.follows = False  # it was told that we coordinate, or are going to
        self.limit = limit  # seconds of silence after which it counts as failed
        self.view = beat.view
        self.update(beat, now)

    def is_as_before(self, beat: Beat) -> bool:
        return (
            self.view == beat.view
            and self.since == beat.since
            and self.leaving == beat.leaving
            and self.leads == beat.leads
        )

    def update(self, beat: Beat, now: float) -> None:
        if beat.view != self.view:
            self.shy = 0.0
        self.role = beat.role
        self.view = beat.view
        self.since = beat.since
        self.leaving = beat.leaving
        self.leads = beat.leads
        self.heard = now

    def lives(self, now: float) -> bool:
        return not self.leaving and now - self.heard < self.limit


class Retry:
    """When to send a request once more: each time after twice as long, because a receiver that is slow would be
    slower still with more to read."""

    __slots__ = ("at", "pause")

    def __init__(self, pause: float, now: float) -> None:
        self.pause = pause
        self.at = now + pause

    def is_due(self, now: float) -> bool:
        if now < self.at:
            return False
        self.pause *= 2
        self.at = now + self.pause
        return True


class Round:
    """A view that we are making."""

    __slots__ = ("answered", "answers", "begun", "id", "invited", "retry")

    def __init__(self, id_: ViewId, invited: Iterable[MemberId], pause: float, now: float) -> None:
        self.id = id_
        self.invited = dict.fromkeys(invited)
        self.begun = now
        self.answered = now  # when the last answer came
        self.retry = Retry(pause, now)
        self.answers: dict[MemberId, Prepared] = {}


class Promise:
    """A view that another member is making, and that we wait for."""

    __slots__ = ("answer", "begun", "retry", "size", "to")

    def __init__(self, to: MemberId, answer: Prepared, size: int, pause: float, now: float) -> None:
        self.to = to
        self.answer = answer
        self.size = size  # members that were asked
        self.begun = now
        self.retry = Retry(pause, now)


class Reach(Layer):
    def __init__(self, site: Site, reception: Reception, last: ViewId) -> None:
        super().__init__(site)
        self.reception = reception
        self.peers: dict[MemberId, Peer] = {}
        """Those whose heartbeats come here: in the core or outside of our view, or all if we coordinate."""
        self._agreed: Agreement | None = None
        self._rank: int | None = None  # by age in our view; 0 coordinates
        self._listens = False  # to what is sent to coordinators
        self._listens_since = 0.0
        self._call_again_at = 0.0  # while we are in no view
        self._call_interval = site.options.beat
        self._listen_at = 0.0
        self._watched: set[MemberId] = set()  # members of our view whose silence we notice
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
        self._heard = 0.0  # any other member or publisher
        self._listening = 0.0  # since when
        self._next_beat = 0.0
        self._beats_until_call = 0
        self._next_call = 0.0  # outside of our heartbeats
        self._next_introduction = 0.0
        self._quiet_until = 0.0
        self._next_round = 0.0
        self._next_completion = 0.0
        self._failures = 0  # rounds in a row that most did not answer

    def start(self, now: float) -> None:
        self._begun = self._attended = self._heard = self._listening = now
        options = self.site.options
        if self.reception.since is not None and not options.ordered:
            self._quiet_until = now + QUIET * options.beat
        delay = self._delay() * options.beat
        self._call_again_at = max(now + delay, self._quiet_until + delay / 2)
        self._listen_at = self._call_again_at + options.again
        self._beat(now)
        if self.site.role is Role.ARCHIVE:
            self._listen(True, now)

    def _delay(self) -> float:
        """Beats after which a newcomer calls once more, and listens if it still gets no answer. Of those who
        start together few do so early, each time twice as many after a tenth of a beat: the first one answers
        all but a few of the others."""
        return max(0.1, 1 + log2(self._chance()) / 10)

    def _listen(self, to_coordinators: bool, now: float) -> None:
        if to_coordinators != self._listens:
            self._listens = to_coordinators
            self.site.effects.append(Listen(to_coordinators))
            self._listening = self._listens_since = now

    def _postpone_listening(self, now: float) -> None:
        """A newcomer has seen that a coordinator makes views, and gives it more time to answer."""
        self._listen_at = max(self._listen_at, now + self.site.options.suspect)

    # --- our place in the view ---

    @property
    def _coordinates(self) -> bool:
        return self._rank == 0

    @property
    def _leads(self) -> bool:
        """Whether newcomers are to turn to us."""
        return self._listens and not self._rank

    @property
    def _is_alone(self) -> bool:
        """Whether we are a subscriber that is the only member of its view. While an older coordinator lives,
        such a member waits for an invitation like a newcomer and calls only that coordinator: if many members
        start together and each called all others, the packets would grow with the square of the group."""
        single = self._agreed is not None and len(self._agreed.view.seats) == 1
        return single and self.site.role is not Role.ARCHIVE

    @property
    def _is_core(self) -> bool:
        """Or may become part of it: a newcomer is in no view yet."""
        return self._rank is None or self._rank <= DEPUTIES

    @property
    def _hears_all(self) -> bool:
        """Whether every member of our view is heard here."""
        if self._agreed is None or self._coordinates:
            return self._listens
        return len(self._agreed.view.seats) <= DEPUTIES + 1

    def _is_seated(self, member: MemberId) -> bool:
        return self._agreed is not None and member in self._agreed.ranks

    def _scale_for(self, members: int) -> float:
        """How many times as long things may take in a group of this size."""
        return max(1.0, members / self.site.options.full_rate_members)

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
            case Prepare() as prepare:
                self._postpone_listening(now)
                invited = self._invited(prepare)
                self._consider(event.sender, prepare, invited, now)
                named = Prepare(prepare.round, invited)
                self._above(Heard(event.channel, event.sender, named), now)
            case Prepared() as answer:
                self._collect(event.sender, answer, now)
            case NewView() as new:
                self._postpone_listening(now)
                self._accept(new, now)
            case NextView() as next_:
                self._postpone_listening(now)
                if self._agreed is not None and self._agreed.id == next_.base:
                    self._accept(self._agreed.whole(next_), now)
            case Roll():
                self._tell_members(event.sender, now)
            case _:
                self._above(event, now)

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Left):
            beat = Beat(self.site.role, self._view_id, self._since, True)
            lead = self._lead(now)
            if lead is not None:
                self.say(beat, lead, now)
            if lead is None or self._is_core:
                self.say(beat, COORDINATORS, now)
        self._below(event, now)

    def _hear(self, sender: MemberId, beat: Beat, now: float) -> None:
        self._number = max(self._number, beat.view.number)
        peer = self.peers.get(sender)
        ours = self._rank is not None and beat.view == self._view_id
        if beat.hears_others and ours:
            self.site.outsider = now
        if peer is not None and ours and peer.is_as_before(beat):
            peer.heard = now  # whether others are silent is looked at with our own beat
            return
        if not beat.leaving and not self._is_seated(sender):
            self.site.outsider = now
        news = peer is None or not peer.is_as_before(beat)
        if peer is not None:
            peer.update(beat, now)
        elif not beat.leaving and len(self.peers) < MAX_MEMBERS - 1:
            limit = self.site.options.suspect * (1.0 if self._is_core else self.site.scale)
            self.peers[sender] = Peer(beat, now, limit)
        if not ours and not beat.leaving:
            self._hear_other(sender, beat, news, now)
        self._coordinate(now)

    def _hear_other(self, sender: MemberId, beat: Beat, news: bool, now: float) -> None:
        """A newcomer, a member that was left out, or one of another group."""
        if not beat.since:
            self._hear_newcomer(sender, beat, now)
        elif self._rank is None:
            if beat.leads and self.site.role is not Role.ARCHIVE:
                self._listen(False, now)
        elif beat.leads and self._leads and not self._is_older(sender, beat):
            if news:
                self._call_group(now)
        elif beat.leads:
            if self._is_alone:
                self._listen(False, now)
            self._introduce(sender, now)
        if news and self._rank is None and not self._listens and self._lead(now) is None:
            self._beat(now)  # the one that we had turned to refers us to another

    def _hear_newcomer(self, sender: MemberId, beat: Beat, now: float) -> None:
        """Answer it, so that it knows of us at once; or tell it that we are not its coordinator any more."""
        rivals = self._rank is None and beat.leads
        if rivals and sender < self.site.me and self.site.role is not Role.ARCHIVE:
            self._listen(False, now)
        peer = self.peers.get(sender)
        if peer is not None and (self._leads or peer.follows):
            peer.follows = self._leads
            self.say(self._own_beat(now), sender, now)

    def _call_group(self, now: float) -> None:
        """Call the members of a younger coordinator's view; those that answer are asked to the next view. Each
        call reaches all members of the feed: where many coordinators compete they share one for each beat."""
        if now >= self._next_call:
            self._call(now)
        else:
            self._beats_until_call = 0
        self._next_round = max(self._next_round, now + self.site.options.again)

    def _introduce(self, coordinator: MemberId, now: float) -> None:
        """RC9: tell a coordinator of another view that we live."""
        if now >= self._next_introduction:
            self._next_introduction = now + self.site.options.beat / 2
            self.say(self._own_beat(now), coordinator, now)

    def _tell_members(self, sender: MemberId, now: float) -> None:
        if self._agreed is not None and self._coordinates:
            view, since = self._agreed.view, self._agreed.since
            self.say(NewView(view, since, {}, [], self._complete), sender, now)

    def stall(self, seconds: float) -> None:
        """RC7: what was said meanwhile may be lost. The loop has run again within a beat."""
        if seconds > self.site.options.suspect / 2:
            self._listening = self._attended + self._interval()

    # --- promising ---

    def _invited(self, prepare: Prepare) -> list[MemberId]:
        """Empty if we are not in the view that the packet refers to: then we are sent the whole."""
        if prepare.base == NO_VIEW:
            return prepare.more
        if self._agreed is not None and self._agreed.id == prepare.base:
            return self._agreed.invited(prepare)
        return []

    def _consider(
        self, sender: MemberId, prepare: Prepare, invited: list[MemberId], now: float
    ) -> None:
        round_ = prepare.round
        self._number = max(self._number, round_.number)
        promise = self._promise
        if promise is not None and promise.answer.round == round_:
            if sender != self.site.me and self.site.me in invited:
                self.say(promise.answer, promise.to, now)
        elif self.site.me in invited and round_ > self._promised:
            if sender != self.site.me:
                self._round = None
            self._give(sender, round_, invited, prepare.base, now)

    def _give(
        self, to: MemberId, round_: ViewId, invited: list[MemberId], base: ViewId, now: float
    ) -> None:
        """Stop delivering, and say what we have."""
        self._promised = round_
        self.reception.freeze()
        vector = self.reception.received()
        if base != NO_VIEW:
            assert self._agreed is not None
            vector = self._agreed.shorten(vector)
        site = self.site
        # In a view of its own a subscriber has seen nobody of whom an archive would want to know.
        unseen = self._alone and site.role is not Role.ARCHIVE
        view = NO_VIEW if unseen else self._view_id
        outlook = self._outlook(invited, now)
        answer = Prepared(round_, site.role, view, self._since, vector, outlook, base)
        self._promise = Promise(to, answer, len(invited), self._again(len(invited)), now)
        if to == site.me:
            self._collect(to, answer, now)
        else:
            self.say(answer, to, now)

    def _outlook(self, invited: list[MemberId], now: float) -> Outlook:
        heard = {m.name for m, peer in self.peers.items() if peer.lives(now)}
        if heard.difference(m.name for m in invited):  # a name that is back counts once
            return Outlook.OTHERS
        return Outlook.CLEAR if self._hears_all and self._has_listened(now) else Outlook.SHORT

    def _is_hearing(self, now: float) -> bool:
        return now - self._heard <= self.site.options.suspect * self.site.scale / 2

    def _has_listened(self, now: float) -> bool:
        wanted = self.site.options.suspect * self.site.scale
        return self._is_hearing(now) and now - self._listening >= wanted

    def _give_up(self, now: float) -> None:
        self._promise = None
        self._above(Thawed(), now)

    def _accept(self, new: NewView, now: float) -> None:
        view, promise = new.view, self._promise
        rank = next((i for i, s in enumerate(view.seats) if s.member == self.site.me), None)
        if rank is None:
            if view.seats and view.id.number > self._view_id.number:
                self._introduce(view.seats[0].member, now)
            return
        if promise is None or promise.answer.round != view.id or len(new.since) != len(view.seats):
            return
        self._promise = None
        self._view_id = view.id
        self._view_at = now
        self._complete = new.complete
        self._alone = self._alone and len(view.seats) == 1
        self._number = max(self._number, view.id.number)
        self._since = new.since[rank]
        self.site.view = view
        self._take_seat(Agreement(new), rank, now)
        record = ViewRecord(view, Vector(new.cut), tuple(new.previous), complete=new.complete)
        self._above(Accepted(record), now)

    def _take_seat(self, agreed: Agreement, rank: int, now: float) -> None:
        """Watch those whose heartbeats come to our place."""
        heard_all = self._hears_all
        self._agreed, self._rank = agreed, rank
        seats = agreed.view.seats
        site, options = self.site, self.site.options
        site.scale = self._scale_for(len(seats))
        self._listen(self._is_core, now)
        if self._coordinates and not heard_all:
            self._listening = now
        watched = len(seats) if rank == 0 else DEPUTIES + 1 if self._is_core else 1
        self._watched = set()
        self.peers = {m: peer for m, peer in self.peers.items() if not self._is_seated(m)}
        for i, seat in enumerate(seats[:watched]):
            if seat.member != site.me:
                beat = Beat(seat.role, agreed.id, agreed.since[i], leads=i == 0)
                limit = options.suspect
                if not self._is_core:
                    # Older members notice it before, and one of them takes over.
                    limit += limit * (site.scale - 1) + (rank - DEPUTIES) * options.again / 4
                elif i > DEPUTIES and seat.role is not Role.ARCHIVE:
                    limit *= site.scale
                self._watched.add(seat.member)
                self.peers[seat.member] = Peer(beat, now, limit)
        self._next_beat = min(self._next_beat, now + self._interval())

    # --- coordinating ---

    def _coordinate(self, now: float) -> None:
        """Begin a round if the view is not as it should be, and it is ours to see to."""
        options = self.site.options
        if self._round is not None or self._promise is not None or now < self._next_round:
            return
        if self._view_id == NO_VIEW:  # others that listen, too, are to be heard before
            begins = max(self._begun + 2 * options.beat, self._listens_since + 2 * options.again)
            if not self._listens or now < begins:
                return
        living = {m: peer for m, peer in self.peers.items() if peer.lives(now)}
        if any(self._is_older(member, peer) for member, peer in living.items()):
            return
        failed = self._watched - living.keys()
        fresh_view = now < self._view_at + 2 * options.flush * self.site.scale
        wanted, astray = [], False
        for member, peer in living.items():
            if peer.shy <= now:
                seated = self._is_seated(member)
                astray = astray or (peer.view != self._view_id and not (seated and fresh_view))
                if not seated:
                    wanted.append(member)
        view = self.site.view
        if view is None or astray or failed or self._is_to_be_completed(view, living, now):
            kept = [m for m in view.members() if m not in failed] if view is not None else []
            shy = {m for m, peer in living.items() if peer.shy > now}
            me = self.site.me
            self._open([me, *(m for m in (*kept, *wanted) if m != me and m not in shy)], now)

    def _is_older(self, member: MemberId, peer: Peer | Beat) -> bool:
        """Whether this one coordinates before us. Of newcomers only one that listens does."""
        if not peer.since and not peer.leads:
            return False
        youngest = self._number + 1
        return (peer.since or youngest, member) < (self._since or youngest, self.site.me)

    def _is_to_be_completed(self, view: View, living: dict[MemberId, Peer], now: float) -> bool:
        """Whether archives would learn from another view that all others are silent."""
        if self._complete or now < self._next_completion or not view.archives():
            return False
        return self._has_listened(now) and all(map(self._is_seated, living))

    def _open(self, invited: list[MemberId], now: float) -> None:
        self._number += 1
        round_ = ViewId(self._number, self.site.me.incarnation)
        self._round = Round(round_, invited, self._again(len(invited)), now)
        whole = Prepare(round_, invited)
        base = NO_VIEW
        if self.site.options.ordered and self._knows_archive():
            self.say(Prepare(round_, []), None, now)
        short = None if self._agreed is None else self._agreed.prepare(round_, invited)
        if short is None or 2 * len(short.more) > len(invited):
            self.say(whole, MEMBERS, now)
        else:
            base = short.base
            self.say(short, MEMBERS, now)
            for member in short.more:
                self.say(whole, member, now)
        self._give(self.site.me, round_, invited, base, now)

    def _knows_archive(self) -> bool:
        view = self.site.view
        return (
            self.site.role is Role.ARCHIVE
            or any(peer.role is Role.ARCHIVE for peer in self.peers.values())
            or (view is not None and bool(view.archives()))
        )

    def _collect(self, sender: MemberId, answer: Prepared, now: float) -> None:
        round_ = self._round
        if round_ is None or answer.round != round_.id:
            decided = self._decided
            if decided is not None and answer.round == decided.view.id:
                self.say(decided, sender, now)
        elif sender in round_.invited and answer.base in (NO_VIEW, self._base()):
            if sender not in round_.answers:
                round_.answered = now
            round_.answers[sender] = answer
            if len(round_.answers) == len(round_.invited):
                self._decide(round_, now)

    def _base(self) -> ViewId:
        return NO_VIEW if self._agreed is None else self._agreed.id

    def _decide(self, round_: Round, now: float) -> None:
        suspect = self.site.options.suspect * self.site.scale
        self._round = None
        self._next_round = now + self._pause(round_)
        self._next_completion = now + suspect if self._has_listened(now) else 0.0
        for member in round_.invited:
            if member not in round_.answers and member in self.peers:
                self.peers[member].shy = now + 2 * suspect
        decided = self._decided = self._next_view(round_)
        elsewhere = [m for m, answer in round_.answers.items() if answer.base == NO_VIEW]
        if self._agreed is None or 2 * len(elsewhere) > len(round_.answers):
            self.say(decided, MEMBERS, now)
        else:
            self.say(self._agreed.difference(decided), MEMBERS, now)
            for member in elsewhere:
                self.say(decided, member, now)
        self._accept(decided, now)

    def _pause(self, round_: Round) -> float:
        """Seconds until the next round: newcomers are gathered meanwhile. If most members did not answer they
        may have promised themselves to another coordinator: one of those that compete is to wait longer."""
        if 2 * len(round_.answers) > len(round_.invited):
            self._failures = 0
        else:
            self._failures = min(self._failures + 1, MOST_FAILURES)
        pause = self.site.options.again * self._scale_for(len(round_.invited))
        return pause * (2**self._failures * (0.5 + self._chance()) if self._failures else 1.0)

    def _chance(self) -> float:
        """Of this member: above 0, up to 1."""
        return (crc32(self.site.me.incarnation) + 1) / 2**32

    def _next_view(self, round_: Round) -> NewView:
        answers, number = round_.answers, round_.id.number
        cut: dict[bytes, int] = {}
        if self._agreed is not None:
            cut = self._agreed.joined(a for a in answers.values() if a.base != NO_VIEW)
        raise_to(cut, joined_whole(a for a in answers.values() if a.base == NO_VIEW))
        # Groups that meet may have more together than anybody follows; the oldest member's come first.
        cut = dict(islice(cut.items(), self.reception.most + MOST_ORDERS))
        order = sorted(answers, key=lambda m: (answers[m].since or number, m))
        seats = tuple(Seat(member, answers[member].role) for member in order)
        since = [answers[member].since or number for member in order]
        previous = sorted({a.view for a in answers.values()} - {NO_VIEW})
        outlooks = {answer.outlook for answer in answers.values()}
        complete = (
            len(answers) == len(round_.invited)
            and Outlook.OTHERS not in outlooks
            and Outlook.CLEAR in outlooks
        )
        return NewView(View(round_.id, seats), since, cut, previous, complete)

    # --- time ---

    def _interval(self) -> float:
        """Seconds between our heartbeats."""
        full_rate = self._is_core or self.site.role is Role.ARCHIVE
        return self.site.options.beat * (1.0 if full_rate else self.site.scale)

    def _own_beat(self, now: float) -> Beat:
        hears_others = now - self.site.outsider < self.site.options.suspect
        return Beat(
            self.site.role,
            self._view_id,
            self._since,
            leads=self._leads,
            hears_others=self._coordinates and hears_others,
        )

    def _lead(self, now: float) -> MemberId | None:
        """The coordinator to send our heartbeats to; None: we are in the core, or hear none (for a view of one
        member, none that is older)."""
        if self._rank is not None and not self._is_alone:
            agreed = self._agreed
            assert agreed is not None
            return None if self._is_core else agreed.view.seats[0].member
        leads = [
            (p.since or self._number + 1, m)
            for m, p in self.peers.items()
            if p.leads and p.lives(now) and (self._rank is None or self._is_older(m, p))
        ]
        return min(leads)[1] if leads and not self._listens else None

    def _beat(self, now: float) -> None:
        if now < self._quiet_until:
            self._next_beat = self._quiet_until
            return
        self._next_beat = now + self._interval()
        if self._rank is None and now >= self._call_again_at:
            # Many newcomers that wait must not slow down the coordinator that is to answer.
            self._next_beat = now + self._call_interval
            self._call_interval = min(2 * self._call_interval, self.site.options.suspect / 2)
        if self._rank is None and now < self._call_again_at:
            self._next_beat = min(self._next_beat, self._call_again_at)
        if self._is_alone and self._lead(now) is None:
            self._listen(True, now)
        self._beats_until_call -= 1
        if self._coordinates and self._leads and self._beats_until_call <= 0:
            self._call(now)
        else:
            self.say(self._own_beat(now), self._lead(now) or COORDINATORS, now)

    def _call(self, now: float) -> None:
        """The coordinator's heartbeat to all."""
        self._beats_until_call = round(self.site.scale)
        self._next_call = now + self.site.options.beat
        self.say(self._own_beat(now), MEMBERS, now)

    def tick(self, now: float) -> None:
        options = self.site.options
        self._attended = now
        newcomer = self._rank is None and not self._listens
        if newcomer and now >= self._listen_at and self._lead(now) is None:
            self._listen(True, now)
            self._beat(now)
            self._next_beat = now + options.again  # not all may have listened yet
        if now >= self._next_beat:
            self._beat(now)
        promise, round_ = self._promise, self._round
        if round_ is not None:
            if now >= self._round_end(round_):
                self._decide(round_, now)
            elif round_.retry.is_due(now):
                whole = Prepare(round_.id, list(round_.invited))
                for member in round_.invited:
                    if member not in round_.answers:
                        self.say(whole, member, now)
        elif promise is not None:
            if now >= self._promise_end(promise):
                self._give_up(now)
            elif promise.retry.is_due(now):
                self.say(promise.answer, promise.to, now)
        for member, peer in list(self.peers.items()):
            if now - peer.heard > 10 * options.suspect or peer.leaving:
                self._part(member)
        self._coordinate(now)

    def _round_end(self, round_: Round) -> float:
        """When to decide without the members that have not answered. While answers still come, the machine or
        the network is slow: a round that began again from the start would be no faster. The limit is less than
        the members wait that have promised."""
        flush = self.site.options.flush * self._scale_for(len(round_.invited))
        return min(round_.answered + flush, round_.begun + 2.5 * flush)

    def _promise_end(self, promise: Promise) -> float:
        """When to give it up: later than the coordinator decides, or its view would come too late."""
        return promise.begun + 3 * self.site.options.flush * self._scale_for(promise.size)

    def _again(self, size: int) -> float:
        """Seconds after which to ask once more, in a round of so many members."""
        return self.site.options.again * self._scale_for(size)

    def _part(self, member: MemberId) -> None:
        """Forget a member that is gone, once it is not in our view."""
        if member not in self._watched:
            del self.peers[member]

    def deadline(self) -> float | None:
        due = self._next_beat
        if self._rank is None:
            for moment in (self._listen_at, self._listens_since + 2 * self.site.options.again):
                if moment > self._attended:
                    due = min(due, moment)
        if self._round is not None:
            due = min(due, self._round.retry.at, self._round_end(self._round))
        elif self._promise is not None:
            due = min(due, self._promise.retry.at, self._promise_end(self._promise))
        elif self._next_round > self._attended:
            due = min(due, self._next_round)
        return due
