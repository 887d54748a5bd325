"""Operations on queues that RabbitMQ does not have: peek, reveal, offsets, move, delete, replay and alter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, Literal

import msgspec

from recado.amqp.errors import AccessRefusedError
from recado.amqp.properties import decode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT, FieldValue, Int64
from recado.broker import checks
from recado.broker.alteration import AlteredSettings, alter, compare_settings, plan_alteration
from recado.broker.chosen_messages import ChosenPositions, delete_messages
from recado.broker.errors import InvalidAlterationError, InvalidValueError
from recado.broker.move import MoveProgress, move
from recado.broker.peek import PeekedMessage, PeekSettings, peek
from recado.broker.queue import Queue
from recado.broker.ready_messages import MessageReader, ReadyMessages, Selection, StreamMessages
from recado.broker.replay import ReplayProgress, replay
from recado.broker.steps import Steps
from recado.broker.stream import Stream
from recado.broker.stream_consumer import StreamConsumer
from recado.broker.work_queue import WorkQueue
from recado.definitions.exporter import to_json_object

from ..access import Access
from ..body import Integer, read_body
from ..broker_steps import run_broker_steps
from ..message_access import FULL_ACCESS, MessageAccess
from ..query import Listing
from ..request import Answer, ApiError, ApiRequest, bad_request, not_authorised, not_found
from ..routes import API, Content
from .connections import channel_details
from .definitions import DRY_RUN
from .messages import GET_MAX_BYTES, GET_MAX_COUNT
from .topology import access_to, find_queue, read_arguments

Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Selector = Annotated[
    str, msgspec.Meta(description="A filter expression; only matching messages are concerned.")
]
SnapshotId = Annotated[
    str,
    msgspec.Meta(
        description="Only the messages of this snapshot of the queue, instead of `selector`."
    ),
]


def find_readable_queue(request: ApiRequest) -> Queue:
    """Return the queue of the path, which the user may read. Raises `ApiError` or `AmqpError`."""
    vhost, name = request.vhost(), request.parameters["queue"]
    access_to(request, vhost).permissions.check_read("queue", name)
    find_queue(request)  # answers 404 as the other routes do, also for an address of direct replies
    return vhost.find_accessible_queue(None, name)


# ── peek ────────────────────────────────────────────────────────────────────────────────────────────


class MessagesToPeek(msgspec.Struct):
    """Which messages to return, and how their payloads are written."""

    count: Count = 10
    skip: Annotated[
        int,
        msgspec.Meta(ge=0, le=2**63 - 1, description="The number of messages to leave out first."),
    ] = 0
    selector: Selector = ""
    offset: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | str | msgspec.UnsetType,
        msgspec.Meta(
            description="Where to begin in a stream: an offset, `first`, `last`, `next`, or an age such as `1h`."
        ),
    ] = msgspec.UNSET
    encoding: Literal["auto", "base64"] = "auto"
    truncate: Annotated[
        Integer, msgspec.Meta(description="Bytes of a payload to return; all if negative.")
    ] = -1


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/peek",
    Access.VHOST,
    content=Content.LIST,
    body=MessagesToPeek,
)
def peek_messages(request: ApiRequest) -> Answer:
    """Return messages of a queue or stream without removing or changing them."""
    queue, body = find_readable_queue(request), read_body(request, MessagesToPeek)
    shown = request.message_access
    settings = PeekSettings(
        count=min(body.count, GET_MAX_COUNT),
        bytes_max=GET_MAX_BYTES,
        skip=body.skip,
        body_bytes_max=shown.body_bytes_max(body.truncate),
        message_filter=shown.parse_selector(body.selector),
    )
    reader = _open_reader(queue, body.offset, request.now_ms)

    async def wait() -> Answer:
        messages = await run_broker_steps(request, peek(reader, settings, request.now_ms))
        return Answer(
            listing=Listing(
                messages,
                lambda message: peeked_object(message, shown, body.encoding, body.truncate),
                lambda message: message.routing_key,
            )
        )

    return Answer(wait=wait)


def _open_reader(queue: Queue, offset: int | str | msgspec.UnsetType, now: int) -> MessageReader:
    if isinstance(queue, Stream):
        return StreamMessages(queue, _parse_offset(offset), now)
    if offset is not msgspec.UNSET:
        raise bad_request("offset: only a stream is read from an offset; use skip for a queue")
    assert isinstance(queue, WorkQueue)
    return ReadyMessages(queue)


def _parse_offset(offset: int | str | msgspec.UnsetType) -> checks.StreamOffset:
    if offset is msgspec.UNSET:
        return checks.StreamOffset("first")
    try:
        return checks.stream_offset(Int64(offset) if isinstance(offset, int) else offset)
    except InvalidValueError as error:
        raise bad_request(
            "offset: expected a number, first, last, next, or an age such as 1h"
        ) from error


def peeked_object(
    message: PeekedMessage, shown: MessageAccess, encoding: str, truncate: int
) -> dict[str, Any]:
    properties = decode_properties(message.properties, max_entries=STORED_MAX_ENTRY_COUNT)
    return {
        "offset": message.offset,
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        **shown.describe(
            properties,
            message.body,
            body_bytes=message.body_bytes,
            encoding=encoding,
            truncate=truncate,
        ),
    }


# ── reveal ──────────────────────────────────────────────────────────────────────────────────────────


class MessageToReveal(msgspec.Struct):
    """The message whose masked fields are to be shown, and how its payload is written."""

    offset: Annotated[
        int, msgspec.Meta(ge=0, le=2**63 - 1, description="The `offset` that peek has answered.")
    ]
    encoding: Literal["auto", "base64"] = "auto"
    truncate: Annotated[
        Integer, msgspec.Meta(description="Bytes of the payload to return; all if negative.")
    ] = -1


@API.add(
    "POST", "/api/queues/{vhost}/{queue}/reveal", Access.VHOST, answers=(200,), body=MessageToReveal
)
def reveal_message(request: ApiRequest) -> Answer:
    """Return one message with its masked fields, without changing it; the audit log has a line for it."""
    if not request.console.message_policy.may_reveal(request.user):
        raise not_authorised("the user may not reveal masked fields")
    queue, body = find_readable_queue(request), read_body(request, MessageToReveal)
    is_stream = isinstance(queue, Stream)
    settings = PeekSettings(
        count=1,
        bytes_max=GET_MAX_BYTES,
        body_bytes_max=FULL_ACCESS.body_bytes_max(body.truncate),
        message_filter=None if is_stream else FULL_ACCESS.parse_selector(f"offset = {body.offset}"),
    )
    reader = _open_reader(queue, body.offset if is_stream else msgspec.UNSET, request.now_ms)
    is_revealed = False

    async def wait() -> Answer:
        nonlocal is_revealed
        messages = await run_broker_steps(request, peek(reader, settings, request.now_ms))
        if not messages or messages[0].offset != body.offset:
            raise not_found()
        is_revealed = True
        return Answer(body=peeked_object(messages[0], FULL_ACCESS, body.encoding, body.truncate))

    return Answer(
        wait=wait,
        outcome=lambda: {"offset": body.offset, "revealed": is_revealed},
        is_change=False,
    )


# ── offsets ─────────────────────────────────────────────────────────────────────────────────────────


@API.add("GET", "/api/queues/{vhost}/{queue}/offsets", Access.VHOST)
def get_offsets(request: ApiRequest) -> Answer:
    """Return the offsets of a stream, and how far each of its consumers is behind the last durable message."""
    stream = find_queue(request)
    if not isinstance(stream, Stream):
        raise bad_request("only a stream has offsets")
    return Answer(
        body={
            "first_offset": stream.first_offset,
            "durable_offset": stream.durable_offset,
            "next_offset": stream.next_position,
            "consumers": [
                {
                    "consumer_tag": each.tag,
                    "channel_details": channel_details(request, each.channel),
                    "next_offset": each.next_offset,
                    "lag": max(stream.durable_offset - each.next_offset, 0),
                }
                for each in stream.consumers
                if isinstance(each, StreamConsumer)
            ],
        }
    )


# ── move ────────────────────────────────────────────────────────────────────────────────────────────


class MessagesToMove(msgspec.Struct):
    """Which messages to move, and where."""

    destination: Annotated[str, msgspec.Meta(min_length=1, description="The name of a queue.")]
    destination_vhost: Annotated[
        str | msgspec.UnsetType, msgspec.Meta(description="The vhost of the queue, if another.")
    ] = msgspec.UNSET
    count: Annotated[
        Count | msgspec.UnsetType, msgspec.Meta(description="At most this many; all if absent.")
    ] = msgspec.UNSET
    selector: Selector = ""
    snapshot: SnapshotId = ""


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/move",
    Access.VHOST,
    answers=(200, 503),
    body=MessagesToMove,
)
def move_messages(request: ApiRequest) -> Answer:
    """Move messages to another queue, in order; the answer counts those that were moved and those that are left.

    If the destination is full, the move stops before a message is rejected or dropped, and `reason` says so.
    """
    source, body = _find_source(request), read_body(request, MessagesToMove)
    destination = _find_destination(request, body.destination, body.destination_vhost)
    if destination is source:
        raise bad_request("destination: the queue itself")
    progress = MoveProgress()
    count = None if body.count is msgspec.UNSET else body.count
    selection = _read_selection(request, source, body.selector, body.snapshot)
    steps = move(source, destination, progress, count, selection)

    async def wait() -> Answer:
        await run_broker_steps(request, _stop_on_alarm(request, steps, progress))
        left = source.ready
        body = {"moved": progress.moved, "left": left, "reason": progress.stop_reason}
        return Answer(body=body, durable=True)

    return Answer(
        wait=wait,
        outcome=lambda: {
            "destination": destination.name,
            "destination_vhost": destination.vhost.name,
            "moved": progress.moved,
        },
    )


def _find_source(request: ApiRequest) -> WorkQueue:
    """Return the queue from which messages are taken. Raises `ApiError` or `AmqpError`."""
    queue = find_readable_queue(request)
    if not isinstance(queue, WorkQueue):
        raise bad_request("a stream keeps its messages: nothing can be moved from it")
    _refuse_during_alarm(request)
    return queue


def _read_selection(
    request: ApiRequest, source: WorkQueue, selector: str, snapshot_id: str
) -> Selection | None:
    """Return which messages are concerned, None for all. Raises `ApiError`."""
    if not snapshot_id:
        return request.message_access.parse_selector(selector)
    if selector:
        raise bad_request("snapshot: a selector cannot be combined with a snapshot")
    snapshot = request.console.snapshots.find(snapshot_id, request.user.name)
    if snapshot is None or snapshot.queue is not source or snapshot.positions is None:
        raise bad_request("snapshot: there is no such snapshot of messages of this queue")
    return ChosenPositions(snapshot.positions)


def _find_destination(request: ApiRequest, name: str, vhost_name: str | msgspec.UnsetType) -> Queue:
    """Return the queue that messages go to, if the user may write to it. Raises `ApiError` or `AmqpError`."""
    vhost = request.vhost()
    if vhost_name is not msgspec.UNSET:
        if vhost_name not in request.broker.vhosts or not request.user.may_enter(vhost_name):
            raise not_authorised("destination_vhost: access refused")
        vhost = request.broker.vhosts[vhost_name]
    access_to(request, vhost).permissions.check_write("queue", name)
    return vhost.find_accessible_queue(None, name)


def _refuse_during_alarm(request: ApiRequest) -> None:
    alarm = request.console.server.alarm
    if alarm is not None:
        raise ApiError(503, "alarm", f"publishers are blocked: {alarm}")


def _stop_on_alarm(request: ApiRequest, steps: Steps[None], progress: MoveProgress) -> Steps[None]:
    """Run the steps of a move. When publishers are blocked, set its `stop_reason`: then it ends."""
    with closing(steps):
        for cost in steps:
            yield cost
            alarm = request.console.server.alarm
            if alarm is not None:
                progress.stop_reason = f"publishers are blocked: {alarm}"


# ── delete ──────────────────────────────────────────────────────────────────────────────────────────


class MessagesToDelete(msgspec.Struct):
    """Which messages to delete."""

    count: Annotated[
        Count | msgspec.UnsetType, msgspec.Meta(description="At most this many; all if absent.")
    ] = msgspec.UNSET
    selector: Selector = ""
    snapshot: SnapshotId = ""


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/delete-messages",
    Access.VHOST,
    body=MessagesToDelete,
)
def delete_chosen_messages(request: ApiRequest) -> Answer:
    """Delete ready messages of a queue; the answer counts those that were deleted and those that are left."""
    source, body = find_readable_queue(request), read_body(request, MessagesToDelete)
    if not isinstance(source, WorkQueue):
        raise bad_request("a stream keeps its messages: none can be deleted from it")
    progress = MoveProgress()
    count = None if body.count is msgspec.UNSET else body.count
    selection = _read_selection(request, source, body.selector, body.snapshot)
    steps = delete_messages(source, progress, count, selection)

    async def wait() -> Answer:
        await run_broker_steps(request, steps)
        body = {"deleted": progress.moved, "left": source.ready, "reason": progress.stop_reason}
        return Answer(body=body, durable=True)

    return Answer(wait=wait, outcome=lambda: {"deleted": progress.moved})


# ── replay ──────────────────────────────────────────────────────────────────────────────────────────


class MessagesToReplay(msgspec.Struct):
    """Which dead letters to replay."""

    count: Annotated[
        Count | msgspec.UnsetType, msgspec.Meta(description="At most this many; all if absent.")
    ] = msgspec.UNSET
    max_replays: Annotated[
        Count | msgspec.UnsetType,
        msgspec.Meta(
            description="Messages that were replayed this many times stay; absent: no limit."
        ),
    ] = msgspec.UNSET
    selector: Selector = ""
    snapshot: SnapshotId = ""


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/replay",
    Access.VHOST,
    answers=(200, 503),
    body=MessagesToReplay,
)
def replay_messages(request: ApiRequest) -> Answer:
    """Return dead letters to the queues where they died, and count them in the header `x-replay-count`.

    The answer counts those that were replayed, and in `kept` those that were not, by reason.
    """
    source, body = _find_source(request), read_body(request, MessagesToReplay)
    progress = ReplayProgress()
    steps = replay(
        source,
        progress,
        _write_predicate(request),
        count_max=None if body.count is msgspec.UNSET else body.count,
        replays_max=None if body.max_replays is msgspec.UNSET else body.max_replays,
        message_filter=_read_selection(request, source, body.selector, body.snapshot),
    )

    def describe() -> dict[str, Any]:
        return {"replayed": progress.moved, "kept": dict(progress.kept)}

    async def wait() -> Answer:
        await run_broker_steps(request, _stop_on_alarm(request, steps, progress))
        body = {**describe(), "left": source.ready, "reason": progress.stop_reason}
        return Answer(body=body, durable=True)

    return Answer(wait=wait, outcome=describe)


def _write_predicate(request: ApiRequest) -> Callable[[str], bool]:
    """Return a function that tells whether the user may write to a queue of the vhost."""
    permissions = access_to(request, request.vhost()).permissions

    def may_write(queue: str) -> bool:
        try:
            permissions.check_write("queue", queue)
        except AccessRefusedError:
            return False
        return True

    return may_write


# ── alter ───────────────────────────────────────────────────────────────────────────────────────────


class QueueAlteration(msgspec.Struct):
    """The settings of a queue that are to change; others stay as they are."""

    type: Annotated[
        Literal["classic", "quorum", "stream"] | msgspec.UnsetType,
        msgspec.Meta(description="The queue type."),
    ] = msgspec.UNSET
    durable: bool | msgspec.UnsetType = msgspec.UNSET
    auto_delete: bool | msgspec.UnsetType = msgspec.UNSET
    arguments: Annotated[
        dict[str, Any] | msgspec.UnsetType,
        msgspec.Meta(description="All arguments; those that are absent are removed."),
    ] = msgspec.UNSET


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/alter",
    Access.VHOST,
    answers=(200, 409, 503),
    body=QueueAlteration,
    query=(DRY_RUN,),
)
def alter_queue(request: ApiRequest) -> Answer:
    """Change settings of a queue that a declaration cannot change; messages, bindings and consumers stay.

    The answer has the value of each changed setting before and after. All settings change at once, or none.
    """
    queue = find_queue(request)
    access = access_to(request, queue.vhost)
    access.permissions.check_configure("queue", queue.name)
    queue.vhost.find_accessible_queue(None, queue.name)  # refuses exclusive queues
    altered = _read_alteration(request)
    with _alteration_errors_as_answers():
        settings = plan_alteration(access, queue, altered)
    changes = compare_settings(queue.declared_settings, settings)
    body = {
        name: {"before": _to_json(each.before), "after": _to_json(each.after)}
        for name, each in changes.items()
    }
    if DRY_RUN.is_true(request.query) or not changes:
        return Answer(body={"altered": False, "changes": body}, is_change=False)
    if queue.is_altering:
        raise ApiError(409, "conflict", "another alteration of the queue is in progress")
    if settings.durable and not queue.survives_restart:
        _refuse_during_alarm(request)

    async def wait() -> Answer:
        with _alteration_errors_as_answers():
            await run_broker_steps(request, alter(request.broker, queue, settings))
        return Answer(body={"altered": True, "changes": body}, durable=True)

    def describe() -> dict[str, Any]:
        # The client may have disconnected after the change, or while the broker completes it.
        is_altered = queue.declared_settings is settings or queue.is_altering
        return {"altered": is_altered, "changes": body}

    return Answer(wait=wait, outcome=describe)


def _read_alteration(request: ApiRequest) -> AlteredSettings:
    if "exclusive" in request.object():
        raise bad_request(
            "exclusive: cannot be altered, because an exclusive queue belongs to the connection that declared it"
        )
    body = read_body(request, QueueAlteration)
    arguments = body.arguments
    return AlteredSettings(
        queue_type=None if body.type is msgspec.UNSET else body.type,
        durable=None if body.durable is msgspec.UNSET else body.durable,
        auto_delete=None if body.auto_delete is msgspec.UNSET else body.auto_delete,
        arguments=None if arguments is msgspec.UNSET else read_arguments(arguments),
    )


@contextmanager
def _alteration_errors_as_answers() -> Iterator[None]:
    try:
        yield
    except InvalidAlterationError as error:
        raise bad_request(str(error)) from error


def _to_json(value: FieldValue) -> Any:
    return to_json_object({"value": value})["value"]
