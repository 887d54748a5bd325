"""A reference model of a queue: a list of messages, dispatched one by one. It has no runs."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Message:
    position: int
    body: bytes
    priority: int
    expires: int | None
    redelivered: bool = False
    returns: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """By priority, then by position."""
        return -self.priority, self.position


@dataclass(eq=False)
class Taker:
    """A consumer on a channel of its own."""

    tag: str
    priority: int
    prefetch: int
    no_ack: bool
    congested: bool = False
    next_tag: int = 1
    held: dict[int, Message] = field(default_factory=dict)
    given: list[tuple[int, bytes, bool]] = field(default_factory=list)

    def has_room(self) -> bool:
        if self.congested:
            return False
        return self.no_ack or not self.prefetch or len(self.held) < self.prefetch

    def give(self, message: Message) -> None:
        self.given.append((self.next_tag, message.body, message.redelivered))
        if not self.no_ack:
            self.held[self.next_tag] = message
        self.next_tag += 1


@dataclass
class ModelQueue:
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = "drop-head"
    ttl: int | None = None
    max_priority: int | None = None
    single_active: bool = False
    delivery_limit: int | None = None
    ready: list[Message] = field(default_factory=list)
    takers: list[Taker] = field(default_factory=list)
    turns: list[Taker] = field(default_factory=list)
    taps: list[Taker] = field(default_factory=list)
    active: Taker | None = None
    dropped: list[tuple[str, bytes]] = field(default_factory=list)
    next_position: int = 0

    # ── in ────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, body: bytes, priority: int, ttl: int | None, now: int) -> bool:
        """Return whether the message was accepted."""
        times = [time for time in (ttl, self.ttl) if time is not None]
        highest = self.max_priority or 0
        expires = now + min(times) if times else None
        message = Message(self.next_position, body, min(priority, highest), expires)
        if self.overflow != "drop-head" and self._is_beyond([*self.ready, message]):
            if self.overflow == "reject-publish-dlx":
                self.dropped.append(("maxlen", body))
            return False
        self.next_position += 1
        for tap in self.taps:
            if not tap.congested:
                tap.give(message)
        self.ready.append(message)
        self.deal(now)
        if times and min(times) == 0:
            self.expire(now)
        self._drop_excess()
        return True

    def _is_beyond(self, messages: list[Message]) -> bool:
        return (self.max_length is not None and len(messages) > self.max_length) or (
            self.max_bytes is not None and sum(len(each.body) for each in messages) > self.max_bytes
        )

    def _drop_excess(self) -> None:
        while self.overflow == "drop-head" and self._is_beyond(self.ready):
            self._drop(min(self.ready, key=rank_of), "maxlen")

    def _drop(self, message: Message, why: str) -> None:
        self.ready.remove(message)
        self.dropped.append((why, message.body))

    def limit(
        self, max_length: int | None, max_bytes: int | None, overflow: str, ttl: int | None
    ) -> None:
        """Change the limits; messages keep their time to live."""
        self.max_length, self.max_bytes, self.overflow, self.ttl = (
            max_length,
            max_bytes,
            overflow,
            ttl,
        )
        self._drop_excess()

    def put_back(self, messages: list[Message], now: int) -> None:
        for message in messages:
            message.redelivered = True
            message.returns += 1
            if self.delivery_limit is not None and message.returns > self.delivery_limit:
                self.dropped.append(("delivery_limit", message.body))
            else:
                self.ready.append(message)
        self._drop_excess()
        self.deal(now)

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────

    def deal(self, now: int) -> None:
        while self.ready and self.turns:
            self._drop_late(now)
            if not self.ready:
                return
            highest = max(taker.priority for taker in self.turns)
            taker = next(each for each in self.turns if each.priority == highest)
            self.turns.remove(taker)
            if taker.has_room():
                message = min(self.ready, key=rank_of)
                self.ready.remove(message)
                taker.give(message)
                self.turns.append(taker)

    def _drop_late(self, now: int) -> None:
        """Drop expired messages at the front. A new message with a TTL of 0 may go to a waiting consumer."""
        while self.ready:
            front = min(self.ready, key=rank_of)
            if front.expires is None or front.expires > now:
                return
            if front.expires == now and not front.redelivered:
                return
            self._drop(front, "expired")

    def get(self, now: int) -> Message | None:
        self._drop_late(now)
        if not self.ready:
            return None
        message = min(self.ready, key=rank_of)
        self.ready.remove(message)
        return message

    def expire(self, now: int) -> None:
        """The front message of each priority."""
        for priority in range(self.max_priority or 0, -1, -1):
            for message in sorted(self.ready, key=rank_of):
                if message.priority == priority:
                    if message.expires is None or message.expires > now:
                        break
                    self._drop(message, "expired")

    # ── consumers ─────────────────────────────────────────────────────────────────────────────────────

    def add(self, taker: Taker, now: int) -> None:
        self.takers.append(taker)
        self._choose()
        self.wake(taker)
        self.deal(now)

    def remove(self, taker: Taker) -> None:
        self.takers.remove(taker)
        if taker in self.turns:
            self.turns.remove(taker)
        if self.active is taker:
            self.active = None
            self._choose()

    def _choose(self) -> None:
        if self.single_active and self.active is None and self.takers:
            self.active = max(self.takers, key=lambda taker: taker.priority)
            self.wake(self.active)

    def wake(self, taker: Taker) -> None:
        may = taker in self.takers and (not self.single_active or taker is self.active)
        if may and taker not in self.turns:
            self.turns.append(taker)

    def settle(self, taker: Taker, tags: list[int], how: str, now: int) -> None:
        messages = [taker.held.pop(tag) for tag in tags]
        self.wake(taker)
        if how == "requeue":
            self.put_back(messages, now)
        elif how == "reject":
            self.dropped += (("rejected", message.body) for message in messages)
        self.wake(taker)
        self.deal(now)


def rank_of(message: Message) -> tuple[int, int]:
    return message.rank
