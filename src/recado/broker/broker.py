"""The broker: vhosts, users, and what is due when.

It decides and never waits; whoever holds it brings time and chance. Clients reach it through `Admission` (a
user in a vhost) and `Channel`. Queues come and go here, because that concerns everybody: bindings, consumers,
the connection that owns an exclusive queue.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from recado.amqp.errors import NotAllowed, PreconditionFailed
from recado.amqp.facts import REPLY_HERE

from .access import User
from .alarms import Alarms
from .arguments import QueueSettings, describe
from .channel import Channel
from .cleanup import Cleanup
from .consumer import Consumer
from .consumer_timeout import ConsumerTimeouts
from .dead_letter import DeadLetters
from .disposal import Disposal
from .gathering import Gathering
from .holding import Holdings
from .keeper import Keeper
from .limits import Usage
from .policy import POLICY_KINDS, Policy
from .queue import Home, Owner, Queue
from .routing import Admission
from .run import Run
from .steps import TURN_UNITS, Steps, finish
from .stream import Stream
from .tally import Tally
from .vhost import Vhost, VhostSettings
from .work_queue import WorkQueue

ALARM_UNITS: Final = (
    TURN_UNITS // 2
)  # of queues whose time has come in one tick, beside all else that it does
UNITS_PER_DELETION: Final = 4  # of a queue, beside its bindings and consumers


class ReplyQueue(Queue):
    """Where direct replies to one channel arrive."""

    is_address = True

    def publish(self, run: Run, now: int) -> Sequence[int]:
        for consumer in self.consumers:
            consumer.deliver(run)
        return ()

    def purge(self) -> int:
        return 0


class Broker:
    leaving = False

    def __init__(
        self,
        new_name: Callable[[], str],
        vhosts: Iterable[str] = ("/",),
        keeper: Keeper | None = None,
    ) -> None:
        self.new_name = new_name  # gives a name that nobody can guess
        self.keeper = keeper or Keeper()
        self.users: dict[str, User] = {}
        self.usage = Usage(self.users)
        self.exclusive: dict[Queue, None] = {}
        self.vhosts: dict[str, Vhost[Queue]] = {}
        self.cleanup = Cleanup()
        self._dead_letters: dict[str, DeadLetters] = {}
        self._homes: dict[str, Home] = {}
        self._admissions: dict[tuple[str, str], Admission] = {}
        self._alarms = Alarms()
        self._disposal = Disposal()
        self.timeouts = ConsumerTimeouts()
        self.gathering = Gathering()
        self.tally = Tally()  # of channels that have ended
        for name in vhosts:
            self.add_vhost(name)

    def add_vhost(self, name: str, *, lasting: bool = False) -> None:
        """A lasting one is there after a restart too, whatever the configuration says by then."""
        if lasting:
            self.keeper.remember("vhost", name, "", b"")
        vhost: Vhost[Queue] = Vhost(name, self.keeper, self.cleanup, self._disposal)
        self.vhosts[name] = vhost
        letters = self._dead_letters[name] = DeadLetters(vhost)
        home = Home(vhost, letters, self._alarms.set, self.keeper, self._disposal)
        self._homes[name] = home
        vhost.holdings = Holdings(home, self._alarms)

    def configure_vhost(self, name: str, settings: VhostSettings) -> None:
        """Set the default queue type and the limits of a vhost; they last as policies do."""
        self.keeper.remember("vhost", name, "", msgspec.msgpack.encode(settings))
        self.vhosts[name].settings = settings

    def add_user(self, user: User, *, lasting: bool = False) -> None:
        """In place of one with the same name; lasting as vhosts are."""
        if lasting:
            self.keeper.remember("user", "", user.name, msgspec.msgpack.encode(user))
        self.users[user.name] = user
        self._admissions.clear()

    def recall(self, facts: Mapping[tuple[str, str, str], bytes], now: int) -> None:
        """Vhosts, users and policies that were remembered, by kind, vhost and name.

        To be called before queues and exchanges are back: they need the vhosts.
        """
        for _, vhost, _ in facts:
            if vhost and vhost not in self.vhosts:
                self.add_vhost(vhost)
        for (kind, vhost, _), value in facts.items():
            if kind == "user":
                self.add_user(msgspec.msgpack.decode(value, type=User))
            elif kind == "vhost" and value:
                settings = msgspec.msgpack.decode(value, type=VhostSettings)
                self.vhosts[vhost].settings = settings
            elif kind in POLICY_KINDS:
                self.vhosts[vhost].policies.set(msgspec.json.decode(value, type=Policy))
        for there in self.vhosts.values():
            self.cleanup.now = now
            finish(self._apply_policies(there))

    def admit(self, user: User, vhost: str) -> Admission:
        """Let a user into a vhost, or refuse with 530."""
        if vhost not in self.vhosts:
            raise NotAllowed(f"vhost {vhost} not found")
        self.usage.check_connection(user.name, vhost, self.vhosts[vhost].settings.limits)
        admission = self._admissions.get((user.name, vhost))
        if admission is None or admission.user is not user:
            admission = Admission(user, self.vhosts[vhost], self.timeouts, self.gathering)
            self._admissions[user.name, vhost] = admission
        return admission

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────

    def check_queue_limit(self, vhost: Vhost[Queue], name: str) -> None:
        """Raise `PreconditionFailed` if the vhost has as many queues as it may."""
        most = vhost.settings.limits.max_queues
        if most is None or len(vhost.queues) < most:
            return
        if self.count_queues(vhost) >= most:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}' ({most})"
                " is reached"
            )

    def count_queues(self, vhost: Vhost[Queue]) -> int:
        """The queues of a vhost, without the addresses of direct replies, which are the broker's own."""
        return len(vhost.queues) - sum(queue.vhost is vhost for queue in self.exclusive)

    def create_queue(
        self,
        vhost: Vhost[Queue],
        name: str,
        settings: QueueSettings,
        owner: Owner | None,
        now: int,
        kind: type[Queue] | None = None,
    ) -> Queue:
        if kind is None:
            kind = Stream if settings.queue_type == "stream" else WorkQueue
        queue = kind(self._homes[vhost.name], name, settings, owner, now)
        if queue.lasting:
            self.keeper.queue_declared(queue)
        vhost.add_queue(queue)
        if isinstance(queue, Stream):
            queue.open(self.keeper.open_stream(queue), now)
        if owner is not None:
            owner.exclusive[queue] = None
        return queue

    def create_reply_queue(self, vhost: Vhost[Queue], now: int) -> Queue:
        """An address for direct replies. It is the broker's own: as a queue it is locked for everybody."""
        name = f"{REPLY_HERE}.{self.new_name()}"
        settings = QueueSettings(exclusive=True, auto_delete=True)
        return self.create_queue(vhost, name, settings, self, now, ReplyQueue)

    def delete_queue(
        self,
        queue: Queue,
        now: int,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        answer: Callable[[int], None] | None = None,
    ) -> None:
        """`answer` is told the number of messages that went with it, before consumers are dismissed.

        Clients that delete what they consume expect it in that order, for RabbitMQ keeps to it.
        """
        described = describe("queue", queue.name, queue.vhost.name)
        if if_unused and queue.consumers:
            raise PreconditionFailed(f"{described} in use")
        if if_empty and (queue.ready or queue.letters):
            raise PreconditionFailed(f"{described} not empty")
        queue.deleted = True
        if queue.owner is not None:
            del queue.owner.exclusive[queue]
            queue.owner = None
        count = queue.purge()
        queue.vhost.remove_queue(queue)
        self.keeper.queue_deleted(queue)
        if answer is not None:
            answer(count)
        self._alarms.drop(queue)
        self.cleanup.begin(self._dismiss_consumers(queue, now))

    def _dismiss_consumers(self, queue: Queue, now: int) -> Steps[None]:
        for consumer in (*queue.consumers, *queue.taps):
            if consumer in queue.consumers or consumer in queue.taps:  # else its channel has ended
                consumer.channel.dismiss(consumer, now)
            yield queue.removal_units

    def cancel(self, consumer: Consumer, now: int) -> None:
        consumer.channel.remove(consumer, now)
        if not consumer.settings.wire_tap:
            self.delete_if_left([consumer.queue], now)

    def close_channel(self, channel: Channel, now: int) -> None:
        """Nothing more is delivered there. What it holds returns at once, or in steps if that is much."""
        self.cleanup.now = now
        self.cleanup.begin(self._end(channel.close()))

    def _end(self, closing: Steps[list[Queue]]) -> Steps[None]:
        queues = yield from closing
        for queue in queues:
            self.delete_if_left((queue,), self.cleanup.now)
            yield 1

    def delete_if_left(self, queues: Iterable[Queue], now: int) -> None:
        """Delete auto-delete queues which have lost their last consumer."""
        for queue in queues:
            if queue.settings.auto_delete and not queue.consumers and not queue.deleted:
                self.delete_queue(queue, now)

    # ── policies ──────────────────────────────────────────────────────────────────────────────────────

    def set_policies(self, vhost: str, policies: Iterable[Policy], now: int) -> None:
        """Set policies, each in place of the one of its kind and name.

        They hold also for queues and exchanges that are there: at once, or in steps if there are many.
        """
        for policy in policies:
            self.vhosts[vhost].policies.set(policy)
            self.keeper.remember(policy.kind, vhost, policy.name, msgspec.json.encode(policy))
        self.cleanup.now = now
        self.cleanup.begin(self._apply_policies(self.vhosts[vhost]))

    def delete_policy(self, vhost: str, name: str, now: int, *, operator: bool = False) -> None:
        """What it made of queues and exchanges is undone."""
        policy = self.vhosts[vhost].policies.remove(name, operator=operator)
        self.keeper.remember(policy.kind, vhost, name, None)
        self.cleanup.now = now
        self.cleanup.begin(self._apply_policies(self.vhosts[vhost]))

    def _apply_policies(self, vhost: Vhost[Queue]) -> Steps[None]:
        """Policies came or went. What is declared between two steps has those of then."""
        yield from vhost.apply_policies()
        for queue in list(vhost.queues.values()):
            if not queue.is_address and not queue.deleted:
                settings = vhost.policies.for_queue(queue.name, queue.declared)
                if settings != queue.settings:
                    queue.reconfigure(settings, self.cleanup.now)
            yield 1

    @property
    def has_more(self) -> bool:
        """Whether something is left to do at the end of a turn: to be let in, or written."""
        return self.gathering.run is not None or self.keeper.has_more

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────

    def deadline(self) -> int | None:
        """When `tick` has something to do next; 0 is at once."""
        if self._disposal.waiting or self.cleanup:
            return 0
        soonest, check = self._alarms.next(), self.timeouts.next
        if soonest is None or (check is not None and check < soonest):
            soonest = check
        for letters in self._dead_letters.values():
            due = letters.deadline()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def tick(self, now: int) -> None:
        """Let expire what has had its time: messages, queues, deliveries; and go on with dead letters."""
        self.gathering.let_in(now)
        self._disposal.go_on()
        self.cleanup.now = now
        self.cleanup.go_on()
        for letters in self._dead_letters.values():
            letters.go_on(now)
        self.timeouts.check(now)
        left = ALARM_UNITS
        while left > 0 and (queue := self._alarms.pop(now)) is not None:
            if queue.is_abandoned(now):
                spent = self.cleanup.spent
                self.delete_queue(queue, now)
                left -= UNITS_PER_DELETION + self.cleanup.spent - spent
            else:
                left -= queue.expire(now)
