"""The owner of a range: it orders the commands, replicates them, executes what is committed, and answers.

A command goes through these steps: `submit` appends it to the log, `flush` sends the new entries to the followers
(one message for each, whatever the number of topics), `stored` counts, and `execute` runs it and yields the answer.
Reads are not appended: they wait for a *barrier*, a majority of answers to a message that was sent after the read
had arrived. Had another owner answered anything before that, a member of this majority would be sealed and would
not answer.

OW1  A command is executed only when a majority has stored it.
OW2  A read sees every command that was answered before it was submitted, in this epoch and all before.
OW3  A command of an upper layer (`Handle`) sees and changes the fields of its topic without interruption: no other
     command on the topic is between the call of its function and the entry with the result.
OW4  Memory is bounded: commands beyond `UNCOMMITTED_ENTRIES_MAX` or `HELD_COMMANDS_MAX` are refused with OVERLOADED.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from .command import (
    Answer,
    CommandId,
    CommandRefusal,
    GetField,
    Handle,
    InDelivery,
    Publish,
    Refused,
    TopicCommand,
    WriteFields,
)
from .delivery import NotificationDispatcher
from .messages import Append, Notified, RangeMessage, Reload, Stored, SubscriptionsLost
from .peer_address import PeerAddress
from .range_state import (
    CommandEntry,
    DeliveriesFinished,
    PendingPublish,
    PendingReplay,
    SubscriptionsEnded,
)
from .replica import Replica

UNCOMMITTED_ENTRIES_MAX: Final = 10_000
HELD_COMMANDS_MAX: Final = 10_000
APPEND_ENTRIES_MAX: Final = 256
EXECUTED_ENTRIES_MAX: Final = 1_000
"""Per step: more wait for the next one, so that other work is not delayed."""
RESEND_S: Final = 0.2
HEARTBEAT_S: Final = 2.0
"""An idle owner sends an empty message, so that it learns if its epoch is over, and followers know that it is not."""

Function = Callable[[Mapping[str, bytes], bytes], tuple[Sequence[tuple[str, bytes | None]], bytes]]
"""A command of an upper layer: (fields of the topic, arguments) → (fields to change, result). It raises `ValueError`
to refuse."""


class Follower:
    """What the owner knows of another node with the range."""

    __slots__ = (
        *("committed", "end", "has_answered", "next", "progressed_at"),
        *("round", "sent_at", "sent_round"),
    )

    def __init__(self, start: int, now: float) -> None:
        self.end = 0
        """It has stored the entries before this position."""
        self.next = start
        """The first entry that was not sent to it."""
        self.round = 0
        self.sent_round = -1
        self.committed = 0
        """The last that it was told."""
        self.has_answered = False
        self.progressed_at = now
        self.sent_at = now


class WaitingCommand(Struct, frozen=True):
    command: TopicCommand
    deadline: float
    """The origin does not wait for longer."""

    def remaining(self, now: float) -> TopicCommand:
        """Return the command with the time that is left for it."""
        return structs.replace(self.command, wait_s=self.deadline - now)


class PendingBarrier:
    __slots__ = ("end", "operation", "round", "waiting")

    def __init__(self, waiting: WaitingCommand, operation: GetField, end: int, round_: int) -> None:
        self.waiting = waiting
        self.operation = operation
        self.end = end
        self.round = round_


class Owner:
    def __init__(
        self, replica: Replica, own: PeerAddress, functions: Mapping[str, Function], now: float
    ) -> None:
        assert replica.is_owned
        self.replica = replica
        self.dispatcher = NotificationDispatcher(replica.range_id, own)
        self.answers: list[tuple[CommandId, Answer]] = []
        """To be sent to the origins."""
        self.outbox: list[tuple[PeerAddress, RangeMessage]] = []
        self._own = own
        self._functions = functions
        self._followers = {
            member: Follower(replica.log.first, now)
            for member in replica.configuration.members
            if member != own
        }
        self._in_log: dict[CommandId, WaitingCommand] = {}
        """Appended and not executed."""
        self._topic_counts: dict[str, int] = {}
        """How many of them each topic has."""
        self._locked: dict[str, CommandId] = {}
        """Topics for which a function was called whose result is in the log."""
        self._held: dict[str, deque[WaitingCommand]] = {}
        self._held_count = 0
        self._reads: deque[PendingBarrier] = deque()
        self._round = 0
        self._has_new_reads = False
        self._resume_deliveries()

    def _resume_deliveries(self) -> None:
        """Deliver again what earlier owners have not finished (DL2 of `delivery`)."""
        state = self.replica.state
        assert state is not None
        for pending in list(state.pending.values()):
            if isinstance(pending, PendingPublish):
                self.dispatcher.publish(state, pending)
            else:
                self.dispatcher.replay(state, pending)

    # ── commands ──────────────────────────────────────────────────────────────────────────────────

    def submit(self, command: TopicCommand, now: float) -> None:
        """Take a command: append it, hold it, answer it, or refuse it."""
        self._submit(WaitingCommand(command, now + command.wait_s))

    def _submit(self, waiting: WaitingCommand) -> None:
        command = waiting.command
        state = self.replica.state
        assert state is not None
        assert self.replica.is_open
        if command.id in self._in_log:
            return
        known = state.answers.find(command)
        if known is not None:
            self._answer(command.id, known)
        elif self._must_wait(command):
            self._hold(waiting)
        elif isinstance(command.operation, GetField):
            self._read_later(waiting, command.operation)
        else:
            self._append(waiting)

    def _read_later(self, waiting: WaitingCommand, operation: GetField) -> None:
        """Read when all that is in the log now is executed, and a barrier that begins now has passed."""
        if any(read.waiting.command.id == waiting.command.id for read in self._reads):
            return
        if len(self._reads) >= UNCOMMITTED_ENTRIES_MAX:
            self._refuse_for_load(waiting.command, "reads wait for a majority")
            return
        self._reads.append(
            PendingBarrier(waiting, operation, self.replica.log.end, self._round + 1)
        )
        self._has_new_reads = True

    def _answer(self, command: CommandId, answer: Answer) -> None:
        if isinstance(answer, InDelivery):
            report = self.dispatcher.report(command)
            if report is None:
                return  # the entry with the report is being committed; the origin asks again
            answer = report
        self.answers.append((command, answer))

    def _must_wait(self, command: TopicCommand) -> bool:
        topic, operation = command.topic, command.operation
        if topic in self._held or topic in self._locked:
            return True
        if isinstance(operation, Handle):
            return bool(self._topic_counts.get(topic))
        if isinstance(operation, Publish):
            state = self.replica.state
            assert state is not None
            return self.dispatcher.is_blocked(state.topics.get(topic))
        return False

    def _hold(self, held: WaitingCommand) -> None:
        command = held.command
        waiting = self._held.setdefault(command.topic, deque())
        if any(each.command.id == command.id for each in waiting):
            return
        if self._held_count >= HELD_COMMANDS_MAX:
            if not waiting:
                del self._held[command.topic]
            self._refuse_for_load(command, "commands wait for their topics")
            return
        waiting.append(held)
        self._held_count += 1

    def _refuse_for_load(self, command: TopicCommand, what: str) -> None:
        text = f"owner of topic {command.topic} is overloaded: too many {what}"
        self.answers.append((command.id, Refused(CommandRefusal.OVERLOADED, text)))

    def _append(self, waiting: WaitingCommand) -> None:
        command = waiting.command
        replica = self.replica
        if replica.log.end - replica.committed >= UNCOMMITTED_ENTRIES_MAX:
            self._refuse_for_load(command, "commands are not committed")
            return
        if isinstance(command.operation, Handle):
            result = self._call(command, command.operation)
            if result is None:
                return
            command = result
            self._locked[command.topic] = command.id
        self._in_log[command.id] = (
            waiting  # not with the result of a function, which another owner must call again
        )
        self._topic_counts[command.topic] = self._topic_counts.get(command.topic, 0) + 1
        replica.append(CommandEntry(command))

    def _call(self, command: TopicCommand, operation: Handle) -> TopicCommand | None:
        """Call the function of an upper layer; return the command to append, or None if it was refused."""
        state = self.replica.state
        assert state is not None
        function = self._functions.get(operation.function)
        topic = state.topics.get(command.topic)
        if topic is None:
            return TopicCommand(  # refused when it is executed, like all other commands
                command.id,
                command.topic,
                command.key,
                WriteFields((), b""),
                command.roles,
                command.answered_below,
            )
        if function is None:
            text = f"function {operation.function} is not registered at the owner"
            self.answers.append((command.id, Refused(CommandRefusal.INVALID, text)))
            return None
        try:
            fields, result = function(dict(topic.fields), operation.arguments)
        except ValueError as error:
            self.answers.append((command.id, Refused(CommandRefusal.INVALID, str(error))))
            return None
        return TopicCommand(
            command.id,
            command.topic,
            command.key,
            WriteFields(tuple(fields), result),
            command.roles,
            command.answered_below,
        )

    def release_held(self, now: float) -> None:
        """Append held commands whose topics are free again, unless their origins have given them up."""
        for topic in list(self._held):
            waiting = self._held.pop(topic)
            while waiting:
                if topic in self._locked or self._must_wait(waiting[0].command):
                    self._held[topic] = waiting
                    break
                self._held_count -= 1
                held = waiting.popleft()
                if now < held.deadline:
                    self._submit(held)

    def close(self, now: float) -> list[TopicCommand]:
        """Return the commands that their origins still wait for: the epoch has ended."""
        unanswered = [*self._in_log.values()]
        for waiting in self._held.values():
            unanswered += waiting
        unanswered += [read.waiting for read in self._reads]
        return [each.remaining(now) for each in unanswered if now < each.deadline]

    # ── replication ───────────────────────────────────────────────────────────────────────────────

    def follow(self, peer: PeerAddress, now: float) -> None:
        """Send the log to a node that is no member (yet)."""
        if peer not in self._followers:
            self._followers[peer] = Follower(self.replica.log.end, now)

    def unfollow(self, peer: PeerAddress) -> None:
        if peer not in self.replica.configuration.members:
            self._followers.pop(peer, None)

    def is_caught_up(self, peer: PeerAddress) -> bool:
        """Whether a follower has the state and nearly all of the log; a decision brings the rest."""
        follower = self._followers.get(peer)
        return (
            follower is not None
            and follower.has_answered
            and follower.end + APPEND_ENTRIES_MAX >= self.replica.log.end
        )

    def ends(self) -> dict[PeerAddress, int]:
        """Return how far the logs of followers with state reach."""
        return {peer: each.end for peer, each in self._followers.items() if each.has_answered}

    def stored(self, peer: PeerAddress, message: Stored, now: float) -> None:
        follower = self._followers.get(peer)
        if follower is None:
            return
        follower.has_answered = True
        follower.round = max(follower.round, message.round)
        if message.end > follower.end:
            follower.end = message.end
            follower.progressed_at = now
        follower.next = max(follower.next, follower.end)
        if message.end < self.replica.log.first:
            self.outbox.append((peer, Reload(self.replica.range_id)))

    def commit(self) -> None:
        """Count what a majority has stored."""
        replica = self.replica
        members = replica.configuration.members
        ends = sorted(
            (
                replica.log.end if member == self._own else self._followers[member].end
                for member in members
            ),
            reverse=True,
        )
        replica.commit(ends[replica.configuration.majority - 1])

    def flush(self, now: float) -> None:
        """Send new entries, the commit position and barriers to the followers."""
        replica = self.replica
        log = replica.log
        if self._has_new_reads:
            self._has_new_reads = False
            self._round += 1
        for peer, follower in self._followers.items():
            first = max(follower.next, log.first)
            if first >= log.end and follower.sent_round >= self._round:
                continue
            if follower.next <= follower.end:
                follower.progressed_at = now  # nothing was outstanding
            self._send(peer, follower, first, now)

    def _send(self, peer: PeerAddress, follower: Follower, first: int, now: float) -> None:
        replica = self.replica
        entries = replica.log.entries(first, APPEND_ENTRIES_MAX)
        follower.next = first + len(entries)
        follower.sent_at = now
        follower.committed = replica.committed
        follower.sent_round = self._round
        configuration = None if follower.has_answered else replica.configuration
        self.outbox.append(
            (
                peer,
                Append(
                    replica.range_id, first, entries, replica.committed, self._round, configuration
                ),
            )
        )

    def tick(self, now: float, is_alive: Callable[[PeerAddress], bool]) -> None:
        """Repeat what followers have not acknowledged, and tell idle ones what is committed."""
        log = self.replica.log
        for peer, follower in self._followers.items():
            if not is_alive(peer):
                continue
            lags = (
                follower.end < log.end or follower.round < self._round or not follower.has_answered
            )
            if lags and now >= follower.progressed_at + RESEND_S:
                follower.progressed_at = now
                self._send(peer, follower, max(follower.end, log.first), now)
            elif not lags and (
                follower.committed < self.replica.committed or now >= follower.sent_at + HEARTBEAT_S
            ):
                self._send(peer, follower, log.end, now)
        self.append_finished()
        self.outbox += self.dispatcher.resend(now, is_alive)

    def append_finished(self) -> None:
        """Record in the log which publishes are delivered, and which subscriptions have ended."""
        if self.replica.is_open and self.dispatcher.has_finished:
            self.replica.append(DeliveriesFinished(self.dispatcher.take_finished()))
        ended, self.dispatcher.ended = self.dispatcher.ended, []
        for each in ended:
            self.end_subscriptions(each)
            lost = SubscriptionsLost(each.topic or "", each.numbers)
            self.outbox.append((each.subscriber, lost))

    def end_subscriptions(self, entry: SubscriptionsEnded) -> None:
        if self.replica.is_open:
            self.replica.append(entry)

    # ── execution ─────────────────────────────────────────────────────────────────────────────────

    def execute(self, now: float) -> None:
        """Commit and execute what a majority has stored, and answer."""
        self.commit()
        replica = self.replica
        state = replica.state
        assert state is not None
        for entry, answer in replica.execute(EXECUTED_ENTRIES_MAX):
            if not isinstance(entry, CommandEntry):
                continue
            command = entry.command
            self._executed(command)
            pending = state.pending.get(command.id)
            if isinstance(pending, PendingReplay):
                self.dispatcher.replay(state, pending)
            if isinstance(answer, InDelivery):
                assert isinstance(pending, PendingPublish)
                answer = self.dispatcher.publish(state, pending)
            if answer is not None:
                self.answers.append((command.id, answer))
        if self._reads:
            self._read()
        if self._held and replica.is_open:
            self.release_held(now)
        self.outbox += self.dispatcher.flush(now)

    def _executed(self, command: TopicCommand) -> None:
        if self._in_log.pop(command.id, None) is None:
            return
        count = self._topic_counts[command.topic] - 1
        if count:
            self._topic_counts[command.topic] = count
        else:
            del self._topic_counts[command.topic]
        if self._locked.get(command.topic) == command.id:
            del self._locked[command.topic]

    def _read(self) -> None:
        """Answer the reads whose barrier a majority has passed (OW2)."""
        replica = self.replica
        state = replica.state
        assert state is not None
        if not replica.is_open:
            return
        rounds = sorted(
            (
                self._round if member == self._own else self._followers[member].round
                for member in replica.configuration.members
            ),
            reverse=True,
        )
        confirmed = rounds[replica.configuration.majority - 1]
        while self._reads:
            read = self._reads[0]
            if read.round > confirmed or read.end > state.position:
                return
            self._reads.popleft()
            command = read.waiting.command
            self.answers.append((command.id, state.read(command, read.operation)))

    @property
    def needs_step(self) -> bool:
        """Whether committed entries wait for the next step."""
        state = self.replica.state
        return state is not None and state.position < self.replica.committed

    # ── notifications ─────────────────────────────────────────────────────────────────────────────

    def notified(self, peer: PeerAddress, message: Notified) -> None:
        self.dispatcher.acknowledge(peer, message)
