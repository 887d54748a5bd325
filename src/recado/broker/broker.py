"""The broker: vhosts, users, the lifecycle of queues, and timers.

The broker computes and never blocks; its caller supplies the time and random names. Clients use it through
`VhostAccess` (a user in a vhost) and `Channel`. Queues are created and deleted here, because that involves
bindings, consumers, and the connection that owns an exclusive queue.

VC1  `consumer_count` of a vhost is the number of consumers and wire taps of its queues, without those of
     direct replies. While consumers of deleted queues are still to be cancelled, it includes these.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from recado.amqp.errors import NotAllowedError, PreconditionFailedError
from recado.amqp.traits import DIRECT_REPLY_TO

from .access import User
from .arguments import QUEUE_TYPES, QueueSettings, QueueType, describe_entity
from .background_work import BackgroundWork
from .channel import Channel
from .coalescer import Coalescer
from .consumer import Consumer
from .consumer_timeout import ConsumerTimeouts
from .dead_letter import DeadLetterRouter
from .delayed_queue import DelayedQueues
from .limits import Usage, VhostLimits
from .memory_reclaimer import MemoryReclaimer
from .message_sizes import MessageSizes
from .observer import IGNORE_CHANGES, Change, ChangeObserver
from .policy import POLICY_KINDS, Policy
from .queue import ExclusiveOwner, Queue, QueueContext
from .queue_timers import QueueTimers
from .routing import VhostAccess
from .run import Run
from .scopes import TokenUser
from .steps import TURN_UNITS_MAX, Steps, run_to_completion
from .store import MessageStore
from .stream import Stream
from .vhost import Vhost, VhostSettings
from .work_queue import WorkQueue

TIMER_UNITS_MAX: Final = TURN_UNITS_MAX // 2  # per tick, for queues whose timers are due
UNITS_PER_DELETION: Final = 4  # of a queue, in addition to its bindings and consumers
LIMITS_COMPONENT, LIMITS_PARAMETER = "vhost-limits", "limits"
"""The limits of a vhost are also a parameter, as in RabbitMQ."""


class ReplyQueue(Queue):
    """The address of direct replies to one channel. It passes messages to its consumer and stores none."""

    is_reply_address = True

    def publish(self, run: Run, now: int) -> Sequence[int]:
        if self.observers:
            run.first_position = self._next_position
            for observer in self.observers:
                observer.entered(self, run)
        for consumer in self.consumers:
            consumer.deliver(run)
        return ()

    def purge(self) -> int:
        return 0


class MessageCounters(msgspec.Struct):
    """Totals of messages since the broker was started.

    A message to several queues or consumers is published once and delivered several times. An open channel
    has its own counters (such as the last delivery tag), which `total_with` reads. They are added here
    when the channel closes, so that no message is counted twice.
    """

    published: int = 0
    published_for_confirm: int = 0
    confirmed: int = 0
    routed: int = 0
    """Counted for each queue."""
    dropped: int = 0
    """Unroutable and not mandatory."""
    returned: int = 0
    """Unroutable and mandatory."""
    delivered: int = 0
    acknowledged: int = 0

    def add_channel(self, channel: Channel) -> None:
        """Add the totals of a channel that is being closed."""
        publisher = channel.publisher
        self.published += publisher.published
        self.published_for_confirm += publisher.published_for_confirm
        self.confirmed += publisher.confirmed
        self.routed += publisher.routed
        self.dropped += publisher.dropped
        self.returned += publisher.returned
        self.delivered += channel.next_tag - 1
        self.acknowledged += channel.acknowledged_count

    def total_with(self, channels: Iterable[Channel]) -> "MessageCounters":
        """Return the totals including those of open channels."""
        total = msgspec.structs.replace(self)
        for channel in channels:
            total.add_channel(channel)
        return total


class DeletedQueueCounters:
    """Totals of the queues that were deleted since the broker was started.

    The attributes are named like those of `Queue`, so that a sum over queues can include this object.
    """

    __slots__ = (
        "acknowledged_count",
        "delivered_count",
        "delivered_no_ack_count",
        "get_count",
        "get_empty_count",
        "get_no_ack_count",
        "published_count",
        "ready",
        "redelivered_count",
        "unacked",
    )

    def __init__(self) -> None:
        self.published_count = self.acknowledged_count = self.redelivered_count = 0
        self.delivered_count = self.delivered_no_ack_count = 0
        self.get_count = self.get_no_ack_count = self.get_empty_count = 0
        self.ready = self.unacked = 0  # always: a deleted queue has no messages

    def add(self, other: "Queue | DeletedQueueCounters") -> None:
        self.published_count += other.published_count
        self.acknowledged_count += other.acknowledged_count
        self.redelivered_count += other.redelivered_count
        self.delivered_count += other.delivered_count
        self.delivered_no_ack_count += other.delivered_no_ack_count
        self.get_count += other.get_count
        self.get_no_ack_count += other.get_no_ack_count
        self.get_empty_count += other.get_empty_count

    def move(self, queue: "Queue", other: "DeletedQueueCounters") -> None:
        """Let the totals of a queue so far stay with these, although it is going to be counted with others."""
        self.add(queue)
        reversed_totals = DeletedQueueCounters()
        for name in self.__slots__:
            if name not in ("ready", "unacked"):
                setattr(reversed_totals, name, -getattr(queue, name))
        other.add(reversed_totals)

    def copy(self) -> "DeletedQueueCounters":
        copied = DeletedQueueCounters()
        copied.add(self)
        return copied


class Broker:
    has_ended = False  # as `ExclusiveOwner` of the reply queues

    def __init__(
        self,
        new_name: Callable[[], str],
        vhosts: Iterable[str] = ("/",),
        store: MessageStore | None = None,
    ) -> None:
        self.new_name = new_name  # returns a name that cannot be guessed
        self.store = store or MessageStore()
        self.observer: ChangeObserver = IGNORE_CHANGES
        self.users: dict[str, User] = {}
        self.usage = Usage(self.users)
        self.exclusive_queues: dict[Queue, None] = {}  # the reply queues, which the broker owns
        self.vhosts: dict[str, Vhost[Queue]] = {}
        self.deleting_vhosts: set[str] = set()
        self.global_parameters: dict[str, object] = {}
        self.staged_imports: dict[str, bytes] = {}
        """What the last end of the process left of an import: see `stage_import`."""
        self.definitions_locked = False
        """Whether an import of definitions is in progress, or a step of an alteration that excludes imports.

        An import reserves names: see `Vhost.reserved`.
        """
        self.background = BackgroundWork()
        self._dead_letters: dict[str, DeadLetterRouter] = {}
        self._contexts: dict[str, QueueContext] = {}
        self._accesses: dict[str, dict[str, VhostAccess]] = {}  # by user and vhost
        self._timers = QueueTimers()
        self._reclaimer = MemoryReclaimer()
        self.consumer_timeouts = ConsumerTimeouts()
        self.coalescer = Coalescer()
        self.counters = MessageCounters()  # of closed channels
        self.message_sizes = MessageSizes()
        self.deleted_queue_counters = {each: DeletedQueueCounters() for each in QUEUE_TYPES}
        for name in vhosts:
            self.add_vhost(name)

    def set_observer(self, observer: ChangeObserver) -> None:
        """Notify this observer of changes from now on, instead of the previous one."""
        self.observer = observer
        for vhost in self.vhosts.values():
            vhost.observer = observer

    def add_vhost(self, name: str, *, persist: bool = False) -> None:
        """Add a vhost; with `persist` it is restored at a restart, independently of the configuration."""
        if persist:
            self.store.set_metadata("vhost", name, "", b"")
        vhost: Vhost[Queue] = Vhost(
            name, self.store, self.background, self._reclaimer, self.message_sizes
        )
        vhost.observer = self.observer
        self.vhosts[name] = vhost
        dead_letter_router = self._dead_letters[name] = DeadLetterRouter(vhost)
        context = QueueContext(
            vhost, dead_letter_router, self._timers.set, self.store, self._reclaimer
        )
        self._contexts[name] = context
        vhost.delayed_queues = DelayedQueues(context, self._timers)
        self.observer.vhost_changed(Change.CREATED, name)

    def delete_vhost(self, name: str, now: int, on_deleted: Callable[[], None]) -> None:
        """Delete a vhost with its policies, queues and exchanges, and the permissions of users in it.

        No client can enter it from now on; the caller closes the connections that are in it. Queues are
        deleted in the background, and `on_deleted` is called when that is done. Until then the name is in
        `deleting_vhosts` and must not be used again.
        """
        vhost = self.vhosts.pop(name)
        self.deleting_vhosts.add(name)
        self.observer.vhost_changed(Change.DELETED, name)
        self.background.begin_turn(now)
        self.background.start(self._delete_vhost(vhost, on_deleted))

    def _delete_vhost(self, vhost: Vhost[Queue], on_deleted: Callable[[], None]) -> Steps[None]:
        for queue in list(vhost.queues.values()):
            if not queue.deleted:
                self.delete_queue(queue, self.background.now)
            yield UNITS_PER_DELETION
        for exchange in list(vhost.exchanges.values()):
            if exchange.name and not exchange.name.startswith("amq.") and not exchange.deleted:
                vhost.delete_exchange(exchange.name)
            yield UNITS_PER_DELETION
        for policy in list(vhost.policies.by_name.values()):
            self.store.set_metadata(policy.kind, vhost.name, policy.name, None)
            self.observer.policy_changed(Change.DELETED, vhost.name, policy)
            yield 1
        for name in list(self.users):
            self._accesses.get(name, {}).pop(vhost.name, None)
            user = self.users.get(name)  # may have been changed or deleted in the steps before
            if user is not None and user.has_access_data(vhost.name):
                self.add_user(user.without_vhost(vhost.name), persist=True)
            yield 1
        self.store.set_metadata("vhost", vhost.name, "", None)
        del self._dead_letters[vhost.name], self._contexts[vhost.name]
        self.deleting_vhosts.remove(vhost.name)
        on_deleted()

    def configure_vhost(self, name: str, settings: VhostSettings) -> None:
        """Replace the settings of a vhost, and persist them."""
        self.store.set_metadata("vhost", name, "", msgspec.msgpack.encode(settings))
        before = self.vhosts[name].settings.limits
        self.vhosts[name].settings = settings
        self.observer.vhost_changed(Change.CHANGED, name)
        if settings.limits != before:
            change = _compare(before != VhostLimits(), settings.limits != VhostLimits())
            self.observer.parameter_changed(change, LIMITS_COMPONENT, name, LIMITS_PARAMETER)

    def set_global_parameter(self, name: str, value: object) -> None:
        """Set a global parameter, a JSON value, or delete it with `msgspec.UNSET`; persist that."""
        was_set, is_set = name in self.global_parameters, value is not msgspec.UNSET
        if not is_set:
            del self.global_parameters[name]
            self.store.set_metadata("global", "", name, None)
        else:
            self.global_parameters[name] = value
            self.store.set_metadata("global", "", name, msgspec.json.encode(value))
        self.observer.parameter_changed(_compare(was_set, is_set), "", "", name)

    def add_user(self, user: User, *, persist: bool = False) -> None:
        """Add a user or replace the one with the same name; `persist` as for vhosts."""
        if persist:
            self.store.set_metadata("user", "", user.name, msgspec.msgpack.encode(user))
        before = self.users.get(user.name)
        self.users[user.name] = user
        self._update_accesses(user)
        self.observer.user_changed(before, user)

    def delete_user(self, name: str) -> None:
        """Delete a user. Its open connections have no permissions any more; the caller closes them."""
        before = self.users.pop(name)
        self.store.set_metadata("user", "", name, None)
        self._update_accesses(User(name))
        self._accesses.pop(name, None)
        self.observer.user_changed(before, None)

    def _update_accesses(self, user: User) -> None:
        """Apply changed permissions to open connections of a user."""
        for access in self._accesses.get(user.name, {}).values():
            access.set_user(user)

    def stage_import(self, name: str, part: bytes | None) -> None:
        """Store a part of an import that is still to be applied, or delete it with None.

        After a restart, the parts that are left are in `staged_imports`.
        """
        self.store.set_metadata("import", "", name, part)

    def restore_metadata(self, metadata: Mapping[tuple[str, str, str], bytes], now: int) -> None:
        """Restore persisted vhosts, users, policies, global parameters and unfinished imports.

        The keys of `metadata` are kind, vhost and name. Call this before queues and exchanges are restored,
        because they need the vhosts.
        """
        for _, vhost, _ in metadata:
            if vhost and vhost not in self.vhosts:
                self.add_vhost(vhost)
        for (kind, vhost, name), value in metadata.items():
            if kind == "user":
                self.add_user(msgspec.msgpack.decode(value, type=User))
            elif kind == "global":
                self.global_parameters[name] = msgspec.json.decode(value)
            elif kind == "import":
                self.staged_imports[name] = value
            elif kind == "vhost" and value:
                settings = msgspec.msgpack.decode(value, type=VhostSettings)
                self.vhosts[vhost].settings = settings
            elif kind in POLICY_KINDS:
                self.vhosts[vhost].policies.set(msgspec.json.decode(value, type=Policy))
        self.background.begin_turn(now)
        for changed in self.vhosts.values():
            run_to_completion(self._apply_policies(changed))

    def grant_access(self, user: User, vhost: str) -> VhostAccess:
        """Return the access of a user to a vhost.

        `user` is that of the login, and may have been changed or deleted since. Raises `NotAllowedError` if the
        vhost does not exist, the user has no permission, or a connection limit is reached.
        """
        if vhost not in self.vhosts:
            raise NotAllowedError(f"vhost {vhost} not found")
        self.usage.check_connection(user.name, vhost, self.vhosts[vhost].settings.limits)
        if isinstance(user, TokenUser):  # each connection has a token of its own
            return VhostAccess(user, self.vhosts[vhost], self.consumer_timeouts, self.coalescer)
        current = self.users.get(user.name)
        if current is None:
            raise NotAllowedError(f"access to vhost '{vhost}' refused for user '{user.name}'")
        access = self._accesses.get(user.name, {}).get(vhost)
        if access is None or not current.may_enter(vhost):
            access = VhostAccess(
                current, self.vhosts[vhost], self.consumer_timeouts, self.coalescer
            )
            self._accesses.setdefault(user.name, {})[vhost] = access
        return access

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────

    def check_queue_limit(self, vhost: Vhost[Queue], name: str) -> None:
        """Raise `PreconditionFailedError` if the vhost has reached its queue limit."""
        limit, pending = vhost.settings.limits.max_queues, vhost.pending_queue_count
        if limit is None or len(vhost.queues) + pending < limit:
            return
        if self.count_queues(vhost) + pending >= limit:
            raise PreconditionFailedError(
                f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}' ({limit})"
                " is reached"
            )

    def count_queues(self, vhost: Vhost[Queue]) -> int:
        """Return the number of queues of a vhost, without internal addresses of direct replies."""
        return len(vhost.queues) - sum(queue.vhost is vhost for queue in self.exclusive_queues)

    def create_queue(
        self,
        vhost: Vhost[Queue],
        name: str,
        settings: QueueSettings,
        owner: ExclusiveOwner | None,
        now: int,
        queue_class: type[Queue] | None = None,
    ) -> Queue:
        if queue_class is None:
            queue_class = Stream if settings.queue_type == "stream" else WorkQueue
        queue = queue_class(self._contexts[vhost.name], name, settings, owner, now)
        if queue.survives_restart:
            self.store.queue_declared(queue)
        vhost.add_queue(queue)
        if not queue.is_reply_address:
            self.usage.queues_created += 1
        if isinstance(queue, Stream):
            queue.attach_log(self.store.open_stream(queue), now)
        if owner is not None:
            owner.exclusive_queues[queue] = None
        if not queue.is_reply_address:
            self.observer.queue_changed(Change.CREATED, queue)
        return queue

    def create_reply_queue(self, vhost: Vhost[Queue], now: int) -> Queue:
        """Create an address for direct replies.

        The broker owns it exclusively, so that clients cannot use it as a queue.
        """
        name = f"{DIRECT_REPLY_TO}.{self.new_name()}"
        settings = QueueSettings(exclusive=True, auto_delete=True)
        return self.create_queue(vhost, name, settings, self, now, ReplyQueue)

    def delete_queue(
        self,
        queue: Queue,
        now: int,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        on_deleted: Callable[[int], None] | None = None,
    ) -> None:
        """Delete a queue, unless `if_unused` or `if_empty` forbids it.

        `on_deleted` is called with the number of deleted messages before the consumers are cancelled:
        clients that delete a queue they consume from expect RabbitMQ's order of replies. Raises
        `PreconditionFailedError` if the queue is in use or not empty.
        """
        described = describe_entity("queue", queue.name, queue.vhost.name)
        if if_unused and queue.consumers:
            raise PreconditionFailedError(f"{described} in use")
        if if_empty and (queue.ready or queue.held_dead_letters):
            raise PreconditionFailedError(f"{described} not empty")
        queue.mark_deleted()
        if not queue.is_reply_address:
            self.usage.queues_deleted += 1
            self.deleted_queue_counters[queue.declared_settings.queue_type].add(queue)
        count = queue.purge()
        queue.vhost.remove_queue(queue)
        self.store.queue_deleted(queue)
        if not queue.is_reply_address:
            self.observer.queue_changed(Change.DELETED, queue)
        if on_deleted is not None:
            on_deleted(count)
        self._timers.cancel(queue)
        self.background.start(self._cancel_consumers(queue, now))

    def _cancel_consumers(self, queue: Queue, now: int) -> Steps[None]:
        for consumer in (*queue.consumers, *queue.wire_taps):
            # Unless its channel has closed since.
            if consumer in queue.consumers or consumer in queue.wire_taps:
                consumer.channel.cancel_consumer(consumer, now)
            yield queue.removal_cost

    def count_altered_type(self, queue: Queue, queue_type: QueueType) -> None:
        """Count what a queue does with its new type from now on, so that no total decreases."""
        counters = self.deleted_queue_counters
        counters[queue.declared_settings.queue_type].move(queue, counters[queue_type])

    def cancel(self, consumer: Consumer, now: int) -> None:
        consumer.channel.remove_consumer(consumer, now)
        if not consumer.settings.wire_tap:
            self.delete_if_unused([consumer.queue], now)

    def close_channel(self, channel: Channel, now: int) -> None:
        """Close a channel. Its messages are requeued immediately, or in steps if they are many."""
        self.background.begin_turn(now)
        self.background.start(self._finish_close(channel.close()))

    def _finish_close(self, steps: Steps[list[Queue]]) -> Steps[None]:
        queues = yield from steps
        for queue in queues:
            self.delete_if_unused((queue,), self.background.now)
            yield 1

    def delete_if_unused(self, queues: Iterable[Queue], now: int) -> None:
        """Delete auto-delete queues that have lost their last consumer."""
        for queue in queues:
            if queue.settings.auto_delete and not queue.consumers and not queue.deleted:
                self.delete_queue(queue, now)

    # ── policies ──────────────────────────────────────────────────────────────────────────────────────

    def set_policies(self, vhost: str, policies: Collection[Policy], now: int) -> None:
        """Set policies, replacing those of the same kind and name.

        They apply to existing queues and exchanges immediately, or in steps if these are many.
        """
        self.store_policies(vhost, policies)
        self.apply_policies(vhost, now)

    def store_policies(self, vhost: str, policies: Collection[Policy]) -> None:
        """Set policies for queues and exchanges that are declared from now on; `apply_policies` does the rest."""
        known = self.vhosts[vhost].policies.by_name.keys()
        changes = [
            _compare((policy.operator, policy.name) in known, is_set=True) for policy in policies
        ]
        self.vhosts[vhost].policies.set(*policies)
        for change, policy in zip(changes, policies, strict=True):
            self.store.set_metadata(policy.kind, vhost, policy.name, msgspec.json.encode(policy))
            self.observer.policy_changed(change, vhost, policy)

    def apply_policies(self, vhost: str, now: int) -> None:
        """Apply the policies to existing queues and exchanges immediately, or in steps if these are many."""
        self.background.begin_turn(now)
        self.background.start(self._apply_policies(self.vhosts[vhost]))

    def delete_policy(self, vhost: str, name: str, now: int, *, operator: bool = False) -> None:
        """Delete a policy, and restore the settings that it had changed."""
        policy = self.vhosts[vhost].policies.remove(name, operator=operator)
        self.store.set_metadata(policy.kind, vhost, name, None)
        self.observer.policy_changed(Change.DELETED, vhost, policy)
        self.apply_policies(vhost, now)

    def _apply_policies(self, vhost: Vhost[Queue]) -> Steps[None]:
        """Recompute the settings of all exchanges and queues.

        Those declared between two steps are up to date already.
        """
        yield from vhost.apply_policies()
        for queue in list(vhost.queues.values()):
            if not queue.is_reply_address and not queue.deleted:
                settings = vhost.policies.effective_queue_settings(
                    queue.name, queue.declared_settings
                )
                if settings != queue.settings:
                    queue.reconfigure(settings, self.background.now)
                    self.observer.queue_changed(Change.CHANGED, queue)
            yield 1

    @property
    def has_pending_work(self) -> bool:
        """Whether the end of a turn has work to do: a coalesced batch to flush, or records to write."""
        return self.coalescer.pending_run is not None or self.store.has_pending_writes

    # ── timers ────────────────────────────────────────────────────────────────────────────────────────

    def deadline(self) -> int | None:
        """Return when `tick` has work to do next, or None; 0 means immediately."""
        if self._reclaimer.pending or self.background:
            return 0
        soonest, next_check = self._timers.next_due(), self.consumer_timeouts.next_check
        if soonest is None or (next_check is not None and next_check < soonest):
            soonest = next_check
        for dead_letters in self._dead_letters.values():
            due = dead_letters.deadline()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def tick(self, now: int) -> None:
        """Run everything that is due: expiry, timeouts, background work and dead letters."""
        self.coalescer.flush(now)
        self._reclaimer.advance()
        self.background.begin_turn(now)
        self.background.advance()
        for dead_letters in self._dead_letters.values():
            dead_letters.advance(now)
        self.consumer_timeouts.check(now)
        left = TIMER_UNITS_MAX
        while left > 0 and (queue := self._timers.pop_due(now)) is not None:
            if queue.is_expired(now):
                cost_before = self.background.cost
                self.delete_queue(queue, now)
                left -= UNITS_PER_DELETION + self.background.cost - cost_before
            else:
                left -= queue.on_timer(now)

    # ── invariants ────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Assert VC1 and the invariants of the vhosts."""
        for vhost in self.vhosts.values():
            vhost.check()
            count = sum(
                len(queue.consumers) + len(queue.wire_taps)
                for queue in vhost.queues.values()
                if not queue.is_reply_address
            )
            assert vhost.consumer_count >= count, "VC1"
            assert vhost.consumer_count == count or self.background, "VC1"


def _compare(was_set: bool, is_set: bool) -> Change:
    """Return the change of an object that was there before or not, and is there now or not."""
    if not is_set:
        return Change.DELETED
    return Change.CHANGED if was_set else Change.CREATED
