"""What has been received of each publisher, and in which order it may pass.

RE1  What `take` hands on is, per publisher, every sequence from where it began, once, in order.
RE2  Nothing passes beyond the limit: between a promise and its view nothing at all, behind it what is before
     the cut.
RE3  What is held is bounded in bytes: the farthest is dropped first, and is missing again.
RE4  With `since`, only what is published from then on is of interest, and a view's cut may be far behind that:
     nothing passes of a publisher until it is heard itself. One that is younger than we are begins at 1, or at
     the cut. Another begins, where nothing is cast again, with the first that comes; elsewhere behind what it
     had published when we began, or as long ago as it tells; and one that stays silent behind what others have
     of it. That beginning is assumed until a message of the publisher arrives: each later view moves it to its
     cut, and a sender outside the view does not show a gap. A report of a publisher's age may have been delayed
     for as long as a broker was stopped, which makes the publisher look younger. So it counts as younger only
     if its first report is heard, or if reports arrive at the pace at which it sends them (`Track.is_dated`);
     one that falls silent before that begins with the first message that came.
RE5  There are at most `most` publishers, so that vectors fit in packets and in memory, whoever invents them.
     When there are so many, those who have published nothing and are silent are forgotten; if there are none
     such, who is new is turned away, and all others go on.
RE6  Without views a publisher begins with its first message that arrives; reports about a publisher of which
     none has arrived are ignored, because they may overtake its messages.
RE7  The age of a gap counts from when its first message became known to exist, so gaps behind one another wait
     at the same time.

FIFO owns it; NAK and PULL look up what is missing, REACH what is there. A message that came in fragments is
received when its last fragment is; until then the track stands at (sequence, index).
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from math import inf

from ..boundary import Batch, Options, Range
from ..layer import Part, Site
from ..vector import MAX_PUBLISHERS
from ..views import Lost, ViewId
from .track import Gap, Item, Track, size_of

ORDERS = b"order"
MOST_ORDERS = 64  # beside all publishers: one that is full goes on ordering
SILENT = 60.0  # seconds; who lives tells more often
LEAST = 1_024
OF_AN_ENTRY = 32  # bytes in a packet, at most
QUIET = 1.2  # beats: who listens for so long has heard everybody's last, but for what is lost on the way


def order_id(view: ViewId) -> bytes:
    """The publisher whose messages are the places in the total order of this view; it concerns no other
    view."""
    return ORDERS + view.number.to_bytes(8)[-6:] + view.coordinator[:5]


def concerns(site: Site, publisher: bytes) -> bool:
    """All publishers do; of orders those of the view that is coming to its end, and of the next."""
    if not publisher.startswith(ORDERS):
        return True
    view = site.view
    return publisher in (order_id(site.current), view and order_id(view.id))


def room_for(options: Options) -> int:
    """How many publishers there may be (RE5). A broker carries packets of any size; elsewhere an
    acknowledgement, which has two vectors, has to fit in one."""
    if options.ordered:
        return MAX_PUBLISHERS
    return max(LEAST, min(MAX_PUBLISHERS, options.packet // (2 * OF_AN_ENTRY)))


class Reception:
    def __init__(
        self,
        most_held: int,
        most: int = MAX_PUBLISHERS,
        *,
        ordered: bool = False,
        beat: float = 0.5,
    ) -> None:
        self.ordered = ordered
        """Nothing is cast again: what comes was published when it came."""
        self.tracks: dict[bytes, Track] = {}
        self.gaps: dict[bytes, Gap] = {}
        self.limit: dict[bytes, int] | None = {}
        """Nothing passes beyond it; None: everything may."""
        self.is_frozen = False
        """Between a promise and its view, or its giving up (RC3)."""
        self.fresh = True
        """It has not begun: a publisher's first message seen is as good a beginning as any."""
        self.has_views = True
        """False: the stack has no REACH (RE6)."""
        self.since: float | None = None
        """When we began, if what was published before is of no interest."""
        self.strangers: set[bytes] = set()
        """With whom we do not know yet where to begin (RE4)."""
        self.sworn: set[bytes] = set()
        """Before it has begun: who had been heard when we last said what we have. No cut is behind them."""
        self.waiting: dict[bytes, float] = {}
        """Since when messages of strangers wait, or others are known to have some."""
        self._assumed: dict[bytes, int] = {}
        """Behind which message we began with publishers that were never heard (RE4)."""
        self.most = most
        self.turned_away = 0
        """How often something of a publisher came that there is no room for (RE5)."""
        self._beat = beat
        self._slack = (QUIET - 1) * beat  # how long a packet may be under way
        self._looked = -inf  # for those who can be forgotten
        self._most_held = most_held
        self._held_bytes = 0

    # --- beginning, freezing ---

    def begin(self, vector: Mapping[bytes, int], now: float) -> None:
        """From here on nothing may be missing behind this vector, and nothing before it passes."""
        self.fresh = False
        every = dict.fromkeys((*self.tracks, *vector))
        if len(every) > self.most:  # whom the others know goes before whom only we have heard
            every = dict.fromkeys(vector)
            for publisher in [p for p in self.tracks if p not in vector]:
                self._forget(publisher)
        for publisher in every:
            if not self.admits(publisher, now):
                continue
            track = self._track(publisher, 1, now)
            track.next, track.index = vector.get(publisher, 0) + 1, 0
            self._skip(publisher, track.next - 1, now)

    def begin_without_views(self) -> None:
        """Follow each publisher from its first message that arrives (RE6)."""
        self.fresh = self.has_views = False
        self.limit = None

    def stall(self, seconds: float) -> None:
        """We were stopped for so long: what is compared with a publisher's age lies further back."""
        if self.since is not None:
            self.since -= seconds
        for track in self.tracks.values():
            track.born -= seconds
            track.past = [(at - seconds, last) for at, last in track.past]

    def freeze(self) -> None:
        """Nothing passes until `thaw`."""
        self.is_frozen = True
        self.limit = {p: track.next - 1 for p, track in self.tracks.items()}
        if self.fresh:
            self.sworn = {p for p, track in self.tracks.items() if self._is_heard(track)}

    def thaw(self, limit: dict[bytes, int] | None) -> None:
        """Let messages pass up to this limit again."""
        self.is_frozen = False
        self.limit = limit

    def received(self) -> dict[bytes, int]:
        known = [(p, t) for p, t in self.tracks.items() if p not in self.strangers]
        return {p: sequence for p, track in known if (sequence := track.received())}

    def passed(self) -> dict[bytes, int]:
        return {p: track.next - 1 for p, track in self.tracks.items() if track.next > 1}

    def known(self) -> dict[bytes, int]:
        """The highest sequence of each that was ever heard of."""
        return {p: max(track.known, track.next - 1) for p, track in self.tracks.items()}

    def reaches(self, cut: Mapping[bytes, int]) -> bool:
        """For whom we have no room we do not wait."""
        tracks = self.tracks
        return all(p not in tracks or tracks[p].next > sequence for p, sequence in cut.items())

    def admits(self, publisher: bytes, now: float) -> bool:
        """Whether it is one of ours, or there is room for it (RE5)."""
        if publisher in self.tracks:
            return True
        most = self.most + MOST_ORDERS if publisher.startswith(ORDERS) else self.most
        if len(self.tracks) >= most and now >= self._looked + 1.0:
            self._looked = now  # now and then: whoever comes in vain must not cost much
            for each in [p for p, track in self.tracks.items() if track.is_idle(now - SILENT)]:
                self._forget(each)
        if len(self.tracks) < most:
            return True
        self.turned_away += 1
        return False

    # --- what comes ---

    def learn(self, publisher: bytes, last: int, now: float) -> None:
        """This publisher is said to have published up to `last`."""
        if self._is_ignored(publisher) or not self.admits(publisher, now):
            return
        track = self._track(publisher, last + 1 if self.fresh else 1, now)
        if last > track.known:
            track.known = last
            self._note(publisher, track, now)
        if publisher in self.strangers and last >= track.next:
            self.waiting.setdefault(publisher, now)

    def mention(self, publisher: bytes, last: int, now: float) -> bool:
        """Another member of the view has passed messages of this publisher up to `last`; returns whether there
        is room for the publisher (RE5). A publisher that is new here is a stranger until it is heard (RE4)."""
        if not self.admits(publisher, now):
            return False
        self._meet(publisher)
        self.learn(publisher, last, now)
        return True

    def tell(
        self,
        publisher: bytes,
        last: int,
        age: float,
        now: float,
        past: Sequence[tuple[float, int]] = (),
    ) -> None:
        """It says so itself, and what it has told before."""
        if self._is_ignored(publisher) or not self.admits(publisher, now):
            return
        self._meet(publisher)
        self.learn(publisher, last, now)
        track = self.tracks[publisher]
        if self.fresh and self.since is not None and not self._is_heard(track):
            self._skip(publisher, last, now)
        track.date(age, now, self._slack)
        track.heard = track.told = now
        track.past = past if self.fresh or publisher in self.strangers else ()

    def _is_ignored(self, publisher: bytes) -> bool:
        """Whether reports about this publisher do not count yet (RE6)."""
        return not self.has_views and publisher not in self.tracks

    def _is_heard(self, track: Track) -> bool:
        """Whether it has said where to begin with it."""
        return self.ordered or track.told > -inf

    def _meet(self, publisher: bytes) -> None:
        """Somebody new may be a stranger."""
        cautious = self.since is not None and not self.fresh
        if cautious and publisher not in self.tracks and not publisher.startswith(ORDERS):
            self.strangers.add(publisher)

    def estrange(self, publisher: bytes, last: int, now: float) -> None:
        """Others have this much of it, and we have not heard it."""
        self.strangers.add(publisher)
        self._skip(publisher, last, now)
        if self.tracks[publisher].places:
            self.waiting.setdefault(publisher, now)

    def can_begin_with(self, publisher: bytes) -> bool:
        """Whether what a stranger has told, or published, shows where to begin (RE4). Whom others know is not
        new, so on an ordered transport its first message does."""
        track = self.tracks[publisher]
        if track.told == -inf:
            return self.ordered and track.next > 1 and bool(track.places)
        if self._is_older(track) or self.is_dated(publisher):
            return True
        return self._beginning_of_older(track) == track.next - 1  # its age makes no difference

    def beginning(self, publisher: bytes) -> int:
        """Behind which message we begin with a stranger that was heard, or has not told its age for long."""
        track = self.tracks[publisher]
        if self.is_dated(publisher) and not self._is_older(track):
            return track.next - 1
        return self._beginning_of_older(track)

    def _beginning_of_older(self, track: Track) -> int:
        assert self.since is not None
        if self.ordered or not self._is_older(track):
            last = track.places[0][0] - 1 if track.places else track.known
        else:
            # A little later: what was under way makes it look younger than it is.
            begun = self.since + self._slack
            last = next((told for at, told in track.past if at >= begun), track.known)
        return max(last, track.next - 1)

    def _is_older(self, track: Track) -> bool:
        """Whether it has told so: no delay makes a publisher look older than it is."""
        assert self.since is not None
        return track.told > -inf and track.born < self.since

    def is_dated(self, publisher: bytes) -> bool:
        """Whether it is known when this publisher began."""
        return self.tracks[publisher].is_dated(self._beat)

    def begin_with(self, publisher: bytes, last: int, now: float) -> None:
        """A stranger, from behind this message on."""
        track = self.tracks[publisher]
        if last and track.told == -inf and not track.places:
            self._assumed[publisher] = last
        self.strangers.discard(publisher)
        self.waiting.pop(publisher, None)
        self._skip(publisher, last, now)

    def is_assumed(self, publisher: bytes) -> bool:
        """Whether only other members have told where this publisher begins, and none of its messages came."""
        last = self._assumed.get(publisher)
        if last is None:
            return False
        track = self.tracks[publisher]
        if track.told == -inf and track.next == last + 1 and not track.places:
            return True
        del self._assumed[publisher]
        return False

    def move_assumed(self, cut: Mapping[bytes, int], now: float) -> list[tuple[bytes, int]]:
        """Move assumed beginnings forward to the cut of a view; returns those that have moved."""
        moved = []
        for publisher in [p for p in list(self._assumed) if self.is_assumed(p)]:
            last = cut.get(publisher, 0)
            if last > self._assumed[publisher]:
                self._assumed[publisher] = last
                self._skip(publisher, last, now)
                moved.append((publisher, last))
        return moved

    def take(self, item: Item, now: float) -> list[Item]:
        """What may pass now."""
        publisher = item.publisher
        first = item.first if isinstance(item, Batch) else item.sequence
        last = item.last if isinstance(item, Batch) else item.sequence
        track = self.tracks.get(publisher)
        if track is None:
            if not self.admits(publisher, now):
                return []
            self._meet(publisher)
            track = self._track(publisher, self._first_expected(item), now)
        track.heard = now
        if last > track.known:
            track.known = last
        if (
            isinstance(item, Batch)
            and first == track.next
            and not track.held
            and self.limit is None
            and publisher not in self.strangers
        ):
            track.next, track.index = last + 1, 0
            track.tip = (track.next, 0)
            if publisher in self.gaps or track.known > last:
                self._note(publisher, track, now)
            return [item]
        if publisher in self.strangers:
            self.waiting.setdefault(publisher, now)
        self._hold(track, item)
        return self.release(publisher, now)

    def _first_expected(self, item: Item) -> int:
        """The sequence at which to begin with the publisher of this item, the first one that arrives."""
        if self.has_views and not self.fresh:
            return 1
        if isinstance(item, Batch):
            return item.first
        # Fragments that a broker sent before we joined do not come again.
        is_incomplete = self.ordered and not self.has_views and item.index > 0
        return item.sequence + is_incomplete

    def release(self, publisher: bytes, now: float) -> list[Item]:
        """What of this publisher may pass now."""
        track = self.tracks[publisher]
        most = None if self.limit is None else self.limit.get(publisher, 0)
        ready: list[Item] = []
        while track.places and publisher not in self.strangers:
            place = track.places[0]
            if place > (track.next, track.index) or (most is not None and track.next > most):
                break
            item = track.held[place]
            if isinstance(item, Part):
                self._drop(track, 0)
                if place == (track.next, track.index):
                    ready.append(item)
                    done = item.index + 1 == item.total
                    track.next, track.index = (
                        (track.next + 1, 0) if done else (track.next, track.index + 1)
                    )
                continue
            upto = item.last if most is None else min(item.last, most)
            if upto >= track.next:
                ready.append(item.part(track.next, upto))
                track.next, track.index = upto + 1, 0
            if track.next > item.last:
                self._drop(track, 0)
        self._note(publisher, track, now)
        return ready

    def close(self, publisher: bytes, last: int, now: float) -> Lost | None:
        """Give up what is missing up to `last`, as far as it may pass."""
        track = self.tracks[publisher]
        if self.limit is not None:
            last = min(last, self.limit.get(publisher, 0))
        first = track.received() + 1
        if last < first:
            return None
        if track.next < first:  # what is before it has yet to pass
            return None
        self._skip(publisher, last, now)
        return Lost(publisher, first, last)

    def skip_orders(self, cut: Mapping[bytes, int], own: bytes, now: float) -> None:
        """Places in orders of views that we were not in are no concern of ours, and those of old views of
        nobody's."""
        for publisher in list(self.tracks):
            if publisher.startswith(ORDERS) and publisher != own:
                self._forget(publisher)
        for publisher, sequence in cut.items():
            foreign = publisher.startswith(ORDERS) and publisher != own
            if foreign and self.admits(publisher, now):
                self._skip(publisher, sequence, now)

    def find(self, publisher: bytes, first: int, last: int) -> list[Batch]:
        """What is held of first..last."""
        track = self.tracks.get(publisher)
        if track is None:
            return []
        items = [track.held[place] for place in track.places]
        return [
            item.part(first, last)
            for item in items
            if isinstance(item, Batch) and item.first <= last and item.last >= first
        ]

    # --- inside ---

    def _track(self, publisher: bytes, next_: int, now: float) -> Track:
        track = self.tracks.get(publisher)
        if track is None:
            track = self.tracks[publisher] = Track(next_, now)
        return track

    def _forget(self, publisher: bytes) -> None:
        track = self.tracks.pop(publisher)
        self.gaps.pop(publisher, None)
        self.strangers.discard(publisher)
        self.waiting.pop(publisher, None)
        self._assumed.pop(publisher, None)
        self._held_bytes -= sum(map(size_of, track.held.values()))

    def _skip(self, publisher: bytes, last: int, now: float) -> None:
        track = self._track(publisher, 1, now)
        if last >= track.next:
            track.next, track.index = last + 1, 0
        track.known = max(track.known, last)
        while track.places and self._end(track, 0) < track.next:
            self._drop(track, 0)
        track.measure()
        self._note(publisher, track, now)

    def _end(self, track: Track, i: int) -> int:
        item = track.held[track.places[i]]
        return item.last if isinstance(item, Batch) else item.sequence

    def _hold(self, track: Track, item: Item) -> None:
        if isinstance(item, Batch):
            place, end = (item.first, 0), item.last
        else:
            place, end = (item.sequence, item.index), item.sequence
        if end < track.next or (isinstance(item, Part) and place < (track.next, track.index)):
            return
        old = track.held.get(place)
        if old is not None:
            if isinstance(old, Batch) and (isinstance(item, Part) or old.last >= item.last):
                return
            self._drop(track, bisect_left(track.places, place))
        track.held[place] = item
        insort(track.places, place)
        self._held_bytes += size_of(item)
        if place <= track.tip:
            track.grow(item)
        if self._held_bytes > self._most_held:
            while self._held_bytes > self._most_held and track.places:
                self._drop(track, len(track.places) - 1)
            track.measure()

    def _drop(self, track: Track, i: int) -> None:
        place = track.places.pop(i)
        self._held_bytes -= size_of(track.held.pop(place))

    def _note(self, publisher: bytes, track: Track, now: float) -> None:
        """Keep `gaps` right. While it is fresh nothing is missing: the view says where it begins."""
        if track.tip < (track.next, track.index):
            track.tip = (track.next, track.index)
        at = track.received() + 1
        if self.fresh or publisher in self.strangers or at > track.known:
            self.gaps.pop(publisher, None)
            track.reports.clear()
            return
        gap, since = self.gaps.get(publisher), track.known_since(at, now)
        if gap is None or gap.at != at:
            self.gaps[publisher] = following = Gap(at, since)
            if gap is not None:
                following.succeed(gap)

    def is_inside(self, publisher: bytes) -> bool:
        """Whether something behind the gap has come."""
        track = self.tracks[publisher]
        return bool(track.places) and track.places[-1] > track.tip

    def missing(self, publisher: bytes, most: int) -> list[Range]:
        ranges = []
        for first, last in self.tracks[publisher].missing():
            ranges.append(Range(publisher, first, last))
            if len(ranges) == most:
                break
        return ranges

    def check(self) -> None:
        """RE1–RE3 and RE5, as far as they can be seen at rest."""
        total = 0
        assert sum(not p.startswith(ORDERS) for p in self.tracks) <= self.most
        assert self.tracks.keys() >= self.strangers >= self.waiting.keys()
        for publisher, track in self.tracks.items():
            assert track.places == sorted(track.held)
            total += sum(map(size_of, track.held.values()))
            assert (publisher in self.gaps) == (
                not (self.fresh or publisher in self.strangers) and track.received() < track.known
            ), "a gap is noted while there is one"
        assert total == self._held_bytes <= self._most_held
