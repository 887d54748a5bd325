"""Alteration: the declared settings of a queue change, and its messages, bindings and consumers stay.

ALT1  A crash leaves the old queue or the new one, with every confirmed message in it once. A queue that does not
      survive a restart is gone after a crash, as it would be without an alteration; of a durable classic queue,
      transient messages may survive a crash that happens while it becomes a quorum queue.
ALT2  Ready messages of a priority keep their order, redelivered flags and times to live. Deliveries stay with their
      channels and are settled as before.
ALT3  A client that redeclares the queue passes with the old settings until the alteration is done, and with the
      new ones after it; policies are combined with the new ones from then on.
ALT4  Each step is bounded, and between two steps all queues are used as always, this one too.

What the new settings require is prepared in steps:

1. If the new queue stores messages that the old one does not, because it becomes durable or a quorum queue,
   messages that enter or return to it are stored from now on. Those that are there are stored late, at their
   positions, in the order in which messages go on: paged-out ones (which a restart would forget), ready ones in
   memory, and then the deliveries of all channels. Bindings and the ids of deduplication are stored as well.
2. If a limit in bytes is new, the ready messages are measured, while others enter and leave.
3. If the priorities are new, the paged-out messages are counted by them, while others are paged in and out. Then
   those in memory change buckets. The queue delivers and drops nothing meanwhile, and this part is completed also
   if the caller closes the steps.

Then one step replaces the settings, and one record of the journal, the new declaration, makes that durable. It
follows everything that was stored late, so it is on disk only with all of that (ALT1). After a crash before this
record, the journal declares no such queue, or the old classic one, so the restart forgets what was stored late.

Consequences of the new settings follow, as after a change of policies: messages beyond a lower limit are
dropped in portions (WQ7). Bindings of a queue that has become transient are removed from the store, where a crash
leaves them without a queue and the next start removes them.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from recado.amqp.errors import NotFoundError
from recado.amqp.values import FieldTable, FieldValue

from . import checks
from .arguments import QueueSettings, QueueType, describe_entity, parse_queue_arguments
from .errors import InvalidAlterationError
from .observer import Change
from .priority_bucket import ReadLimits
from .queue import Queue
from .ready_messages import ReadyMessages
from .routing import VhostAccess
from .run import Run
from .steps import STEP_UNITS_MAX, TURN_UNITS_MAX, Steps, StepTask, chunks
from .work_queue import WorkQueue

if TYPE_CHECKING:
    from .broker import Broker

SURVEY_LIMITS: Final = ReadLimits(message_count=4096, byte_count=1 << 20, run_count=128)
"""Of a step that measures messages."""
_MESSAGES_PER_UNIT: Final = 64  # to measure
_RECORDED_IDS_PER_STEP: Final = 32  # four units each


class AlteredSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue that are to change; None leaves a setting as it is."""

    queue_type: QueueType | None = None
    durable: bool | None = None
    auto_delete: bool | None = None
    arguments: FieldTable | None = None
    """All arguments of the queue; present arguments that are missing here are removed, except the queue type."""


class SettingChange(msgspec.Struct, frozen=True):
    """The value of a setting before and after; None if it is not set."""

    before: FieldValue
    after: FieldValue


def plan_alteration(access: VhostAccess, queue: Queue, altered: AlteredSettings) -> QueueSettings:
    """Return the new settings of a queue.

    Raises `AmqpError` if the user may not declare the queue like this or such a queue cannot be declared, and
    `InvalidAlterationError` if this queue cannot become such a queue.
    """
    permissions, vhost = access.permissions, access.vhost
    permissions.check_configure("queue", queue.name)
    old = queue.declared_settings
    settings = parse_queue_arguments(
        queue.name,
        vhost.name,
        durable=old.durable if altered.durable is None else altered.durable,
        exclusive=False,
        auto_delete=old.auto_delete if altered.auto_delete is None else altered.auto_delete,
        arguments=_new_arguments(old, altered),
    )
    if settings.dead_letter_exchange is not None:
        permissions.check_read("queue", queue.name)
        permissions.check_write("exchange", settings.dead_letter_exchange)
    _check_possible(queue, settings)
    return settings


def _new_arguments(old: QueueSettings, altered: AlteredSettings) -> FieldTable:
    """Return the arguments of the altered queue.

    They name the queue type if the old arguments do, or if another type is requested. Raises
    `InvalidAlterationError` if the requested type and the argument contradict each other.
    """
    arguments = old.arguments if altered.arguments is None else altered.arguments
    requested = altered.queue_type
    named = arguments.get("x-queue-type")
    if requested is None:
        keeps_type = "x-queue-type" in arguments or "x-queue-type" not in old.arguments
        return arguments if keeps_type else {**arguments, "x-queue-type": old.queue_type}
    if altered.arguments is not None and named not in (None, requested):
        raise InvalidAlterationError(
            f"type: '{requested}' contradicts the argument x-queue-type, which is {named!r}"
        )
    if requested == old.queue_type and "x-queue-type" not in old.arguments and named is None:
        return arguments
    return {**arguments, "x-queue-type": requested}


def _check_possible(queue: Queue, settings: QueueSettings) -> None:
    """Raise `InvalidAlterationError` if a queue cannot get these settings."""
    old = queue.declared_settings
    if "stream" in (old.queue_type, settings.queue_type) and old.queue_type != settings.queue_type:
        raise InvalidAlterationError(
            f"type: a queue of type {old.queue_type} cannot become a queue of type {settings.queue_type}, because"
            " consumers of streams have offsets and acknowledge nothing; declare another queue and move the"
            " messages to it"
        )
    exclusive = next((each for each in queue.consumers if each.exclusive), None)
    if settings.single_active_consumer and exclusive is not None:
        raise InvalidAlterationError(
            f"x-single-active-consumer: the consumer '{exclusive.tag}' uses the queue exclusively"
        )


def compare_settings(old: QueueSettings, new: QueueSettings) -> dict[str, SettingChange]:
    """Return the settings that differ: `type`, `durable`, `auto_delete`, and arguments by name."""
    changes = {
        name: SettingChange(before, after)
        for name, before, after in (
            ("type", old.queue_type, new.queue_type),
            ("durable", old.durable, new.durable),
            ("auto_delete", old.auto_delete, new.auto_delete),
        )
        if before != after
    }
    for name in {**old.arguments, **new.arguments}:
        if name == "x-queue-type" and "type" in changes:
            continue
        values = old.arguments.get(name), new.arguments.get(name)
        is_same = (name in old.arguments) == (name in new.arguments) and (
            checks.to_comparable(values[0]) == checks.to_comparable(values[1])
        )
        if not is_same:
            changes[name] = SettingChange(*values)
    return changes


def alter(broker: "Broker", queue: Queue, settings: QueueSettings) -> Steps[None]:
    """Give a queue settings that `plan_alteration` has returned.

    The caller sets `now` of the broker's background work before each step. If it closes the steps before the
    settings were replaced, the queue stays as it was, unless messages are changing buckets already: then the
    alteration is completed in the background, and `is_altering` until then. No other one may be in progress
    (`is_altering`). Raises `InvalidAlterationError` if a client has made this one impossible, and
    `NotFoundError` if the queue was deleted meanwhile.
    """
    assert not queue.is_altering, "the caller checks it"
    queue.is_altering = True
    try:
        yield from _replace_settings(broker, queue, settings)
        yield from _forget_stored_bindings(queue)
    finally:
        # If the caller has closed the steps while messages change buckets, `_complete` goes on with them.
        is_completing = isinstance(queue, WorkQueue) and queue.is_frozen
        queue.is_altering = is_completing and not queue.deleted


def _replace_settings(broker: "Broker", queue: Queue, settings: QueueSettings) -> Steps[None]:
    has_new_priorities = settings.max_priority != queue.declared_settings.max_priority
    try:
        yield from _prepare(broker, queue, settings)
        if has_new_priorities and isinstance(queue, WorkQueue):
            yield from queue.begin_rebucketing(settings.max_priority)
        while broker.definitions_locked:  # what an import has checked must stay true
            yield TURN_UNITS_MAX
        _check_exists(queue)
        _check_possible(queue, settings)
    except BaseException:
        if not queue.deleted:
            queue.abandon_alteration()
        raise
    if not has_new_priorities or not isinstance(queue, WorkQueue):
        _switch(broker, queue, settings)
        return
    task = StepTask(_rebucket(broker, queue, settings))
    queue.start_rebucketing(task)
    try:
        while not task.is_done:
            yield task.advance(1)
    except GeneratorExit:
        broker.background.start(_complete(queue, task))  # the messages cannot stay in two places
        raise
    _check_exists(queue)


def _switch(broker: "Broker", queue: Queue, settings: QueueSettings) -> None:
    if settings.queue_type != queue.declared_settings.queue_type:
        broker.count_altered_type(queue, settings.queue_type)
    queue.alter(settings, broker.background.now)
    broker.observer.queue_changed(Change.CHANGED, queue)


def _rebucket(broker: "Broker", queue: WorkQueue, settings: QueueSettings) -> Steps[None]:
    broker.definitions_locked = True  # refuses imports, which would check the old settings
    try:
        yield from queue.rebucket(settings.max_priority)
        if not queue.deleted:
            _switch(broker, queue, settings)
    finally:
        broker.definitions_locked = False


def _complete(queue: Queue, task: StepTask[None]) -> Steps[None]:
    try:
        while not task.is_done:
            yield task.advance(STEP_UNITS_MAX)
        if not queue.deleted:
            yield from _forget_stored_bindings(queue)
    finally:
        queue.is_altering = False


def _forget_stored_bindings(queue: Queue) -> Steps[None]:
    if not queue.survives_restart and queue.has_stored_bindings:
        yield from queue.vhost.forget_bindings(queue)
        queue.has_stored_bindings = queue.deleted


def _check_exists(queue: Queue) -> None:
    if queue.deleted:
        described = describe_entity("queue", queue.name, queue.vhost.name)
        raise NotFoundError(f"no {described}: it was deleted while it was being altered")


def _prepare(broker: "Broker", queue: Queue, settings: QueueSettings) -> Steps[None]:
    """Do what must be done before the settings are replaced. It has no effect that clients can see."""
    is_new_durable = settings.durable and not queue.survives_restart
    if isinstance(queue, WorkQueue):
        if (yield from queue.store_late_messages(settings)):
            yield from _store_deliveries_late(broker, queue)
        effective = queue.vhost.policies.effective_queue_settings(queue.name, settings)
        if effective.max_length_bytes is not None and queue.settings.max_length_bytes is None:
            yield from _measure(queue)
    if is_new_durable:
        queue.stores_bindings = queue.has_stored_bindings = True
        yield from queue.vhost.record_bindings(queue)
        if broker.store.has_disk and queue.deduplication_window is not None:
            yield from _store_ids(queue)


# ── storing messages late ───────────────────────────────────────────────────────────────────────────


def _store_deliveries_late(broker: "Broker", queue: WorkQueue) -> Steps[None]:
    # A channel that is being closed is not in the list of open ones; a background task requeues its deliveries.
    unfinished = broker.background.newest(len(broker.background))
    for channel in broker.consumer_timeouts.channels:
        if channel.access.vhost is queue.vhost:
            yield from channel.store_unacked_late(queue)
        yield 1
    for task in unfinished:
        while not task.is_done:
            yield TURN_UNITS_MAX


def _store_ids(queue: Queue) -> Steps[None]:
    """Store the ids of deduplication that were not stored because the queue was not durable."""
    window = queue.deduplication_window
    assert window is not None
    record = queue.record_message_ids()
    for ids in chunks(window.ids(), _RECORDED_IDS_PER_STEP):
        for message_id, seen_at in window.persistent_ids(ids):
            record(message_id, seen_at, ())
        yield STEP_UNITS_MAX


# ── measuring ───────────────────────────────────────────────────────────────────────────────────────


class ReadySurvey:
    """Measures the ready messages of a queue; implements `ByteSurvey`."""

    def __init__(self, queue: WorkQueue) -> None:
        self.reader = ReadyMessages(queue, SURVEY_LIMITS)

    def measured_bytes(self, run: Run, priority: int) -> int:
        return self.reader.passed_bytes(run, priority)


def _measure(queue: WorkQueue) -> Steps[None]:
    survey = ReadySurvey(queue)
    queue.begin_survey(survey)
    while (portion := survey.reader.read()) is not None:
        if not queue.is_surveyed_by(survey):  # a policy has set a limit meanwhile
            return
        queue.add_surveyed(sum(sum(run.body_sizes()) for run in portion.runs))
        yield portion.cost + sum(map(len, portion.runs)) // _MESSAGES_PER_UNIT
    queue.end_survey(keep=True)
