"""PULL: asks archives, then other members, for what the publisher could not give; and answers who asks.

P1  One question is open at a time, and the next one follows at once only if the answer was of use. What came
    with it goes to FIFO as if it had just arrived.
P2  Whoever says not to have a message is noted, so that FIFO may know when nobody has it. An archive whose log
    is past it says so too: then it has recorded it as lost, or let it go.
P3  What is kept for others, and what an answer has, is bounded.
"""

from collections.abc import Sequence

from ..block import Malformed
from ..boundary import Channel, Range
from ..layer import Filled, Heard, Layer, Messages, Rising, Site
from ..packet import Pull, Pulled
from ..vector import Span
from ..views import MemberId, Role
from ..wire import carried, carry
from .reception import Reception
from .track import end_of
from .window import Window, lacking

MOST_RANGES = 256
ANSWER = 1024 * 1024  # bytes of messages in an answer, and a batch more


class PullLayer(Layer):
    def __init__(self, site: Site, reception: Reception) -> None:
        super().__init__(site)
        self.reception = reception
        self.window = Window(site.options.window)
        self._number = 0
        self._attempt = 0
        self._due: float | None = None

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Messages(batch):
                self.window.keep(batch)
                self._above(event, now)
            case Heard(_, sender, Pull(number, ranges)):
                self._answer(sender, number, ranges, now)
            case Heard(_, sender, Pulled() as answer):
                self._take(sender, answer, now)
                if self.site.role is Role.ARCHIVE:  # it may be what ARCHIVER has asked for
                    self._above(event, now)
            case _:
                self._above(event, now)

    # --- asking ---

    def tick(self, now: float) -> None:
        if self._due is None:
            self._ask(now)
        elif now >= self._due:
            self._attempt += 1
            self._due = None
            self._ask(now)

    def deadline(self) -> float | None:
        gaps = self.reception.gaps
        if self._due is None and gaps and any(gap.pull for gap in gaps.values()):
            return 0.0
        return self._due

    def _ask(self, now: float) -> None:
        wanted: list[Range] = []
        for publisher, gap in self.reception.gaps.items():
            if gap.pull and len(wanted) < MOST_RANGES:
                wanted += self.reception.missing(publisher, 16)
        others = self.site.others()
        if not wanted:
            return
        self._due = now + self.site.options.again
        if others:
            self._number += 1
            to = others[self._attempt % len(others)]
            self.say(Pull(self._number, wanted[:MOST_RANGES]), to, now)

    def _take(self, sender: MemberId, answer: Pulled, now: float) -> None:
        before = self._places()
        for part in answer.batches:
            try:
                batch = carried(part)
            except Malformed:
                self.site.refused += 1
                continue
            self._below(Filled(batch), now)
        for publisher, spans in _by_publisher(answer.lacking).items():
            gap = self.reception.gaps.get(publisher)
            if gap is not None and end_of(spans, gap.at):
                gap.lacking[sender.incarnation] = (spans, now)
        for publisher, spans in _by_publisher(answer.lost).items():
            gap = self.reception.gaps.get(publisher)
            if gap is not None and end_of(spans, gap.at):
                gap.lost[sender.incarnation] = spans
        if answer.number == self._number and self._places() != before:
            for part in answer.batches:
                gap = self.reception.gaps.get(part.publisher)
                if gap is not None:  # who had this may have the rest: NAK need not try for it first
                    gap.pull = True
            self._due = None
            self._ask(now)

    def _places(self) -> dict[bytes, int]:
        return {publisher: gap.at for publisher, gap in self.reception.gaps.items()}

    # --- answering ---

    def _answer(self, sender: MemberId, number: int, ranges: list[Range], now: float) -> None:
        found, missing, size = [], [], 0
        for wanted in ranges[:MOST_RANGES]:
            if size > ANSWER:
                break
            if wanted.first > wanted.last:  # nonsense, which nobody here asks for
                continue
            here = self.window.find(wanted)
            held = self.reception.find(wanted.publisher, wanted.first, wanted.last)
            here = sorted([*here, *held], key=lambda batch: batch.first)
            missing += lacking(wanted, here)
            for batch in here:
                if size <= ANSWER:
                    found.append(carry(batch))
                    size += len(batch.block.data)
        if self.site.role is Role.ARCHIVE and missing and not found:
            # Its store may have them: ARCHIVER looks there, and answers.
            packet = Pull(number, missing[:MOST_RANGES])
            self._above(Heard(Channel.A, sender, packet), now)
            return
        gone = missing if self.site.role is not Role.ARCHIVE else []
        self.say(Pulled(number, found, gone[:MOST_RANGES]), sender, now)


def _by_publisher(ranges: Sequence[Range]) -> dict[bytes, list[Span]]:
    found: dict[bytes, list[Span]] = {}
    for each in ranges:
        found.setdefault(each.publisher, []).append((each.first, each.last))
    return found
