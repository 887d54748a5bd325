"""Actions on many queues or messages: first a snapshot of what is concerned, then the action on exactly that."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec

from recado.broker.chosen_messages import ChosenPositions, find_positions
from recado.broker.peek import PeekSettings, peek
from recado.broker.queue import Queue
from recado.broker.ready_messages import ReadyMessages
from recado.broker.scopes import TokenUser
from recado.broker.steps import STEP_UNITS_MAX, Steps, chunks
from recado.broker.work_queue import WorkQueue

from ..access import Access, find_refusal, listed_vhosts
from ..body import read_body
from ..broker_steps import run_broker_steps
from ..query import Listing
from ..request import (
    NO_CONTENT,
    Answer,
    ApiError,
    ApiRequest,
    amqp_errors_as_answers,
    bad_request,
    not_found,
)
from ..routes import API, Content
from ..snapshots import (
    ERRORS_MAX_COUNT,
    MESSAGES_MAX_COUNT,
    QUEUES_MAX_COUNT,
    SAMPLE_MAX_COUNT,
    ActionProgress,
    ObjectSnapshot,
)
from .messages import GET_MAX_BYTES, ShortText
from .queue_operations import Selector, find_readable_queue, peeked_object
from .statistics import count_unacked

if TYPE_CHECKING:
    from ..routes import ApiRoute

log = logging.getLogger("recado.console")

SAMPLE_BODY_BYTES: Final = 512
_QUEUES_PER_STEP: Final = STEP_UNITS_MAX * 16
Action = Literal["delete", "purge", "move", "replay"]
# How each action is done: method, the end of the path, and which fields of the answer are counted.
_QUEUE_ACTIONS: Final[dict[str, tuple[str, str, str]]] = {
    "delete": ("DELETE", "", ""),
    "purge": ("DELETE", "/contents", ""),
    "move": ("POST", "/move", "moved"),
    "replay": ("POST", "/replay", "replayed"),
}
_MESSAGE_ACTIONS: Final[dict[str, tuple[str, str, str]]] = {
    "delete": ("POST", "/delete-messages", "deleted"),
    "move": ("POST", "/move", "moved"),
    "replay": ("POST", "/replay", "replayed"),
}


class ChosenQueue(msgspec.Struct):
    """The name of a queue."""

    vhost: ShortText
    name: ShortText


class SnapshotToTake(msgspec.Struct):
    """Which queues, or which messages of one queue."""

    queues: Annotated[
        list[ChosenQueue] | msgspec.UnsetType, msgspec.Meta(description="Exactly these queues.")
    ] = msgspec.UNSET
    name_contains: Annotated[
        str | msgspec.UnsetType,
        msgspec.Meta(description="All queues whose name contains this text, in any case."),
    ] = msgspec.UNSET
    vhost: Annotated[
        ShortText, msgspec.Meta(description="The vhost of the queues, or of `queue`; empty: all.")
    ] = ""
    queue: Annotated[
        ShortText | msgspec.UnsetType,
        msgspec.Meta(description="The messages of this queue that match `selector`."),
    ] = msgspec.UNSET
    selector: Selector = ""


class ActionToRun(msgspec.Struct):
    """What to do with each queue or message of a snapshot."""

    action: Action
    destination: Annotated[
        ShortText, msgspec.Meta(description="For move: the queue that messages go to.")
    ] = ""
    max_replays: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | msgspec.UnsetType,
        msgspec.Meta(description="For replay: messages that were replayed this many times stay."),
    ] = msgspec.UNSET


@API.add("POST", "/api/snapshots", Access.MANAGEMENT, answers=(201, 429), body=SnapshotToTake)
def take_snapshot(request: ApiRequest) -> Answer:
    """Keep which queues or messages are chosen now, for one action on them; the answer has the `id`.

    It has at most 100,000 of them, and is forgotten after an hour.
    """
    body = read_body(request, SnapshotToTake)
    kinds = [
        value
        for value in (body.queues, body.name_contains, body.queue)
        if value is not msgspec.UNSET
    ]
    if len(kinds) != 1:
        raise bad_request("expected one of queues, name_contains and queue")
    if body.queue is not msgspec.UNSET:
        return _take_messages(request, body, body.queue)
    steps = _find_queues(request, body)

    async def wait() -> Answer:
        queues = await run_broker_steps(request, steps)
        snapshot = ObjectSnapshot(
            request.user.name,
            _describe_queues(body),
            is_complete=len(queues) <= QUEUES_MAX_COUNT,
        )
        snapshot.queues = queues[:QUEUES_MAX_COUNT]
        snapshot.message_count = sum(queue.ready for queue in snapshot.queues)
        request.console.snapshots.add(snapshot)
        return Answer(201, body=_snapshot_object(request, snapshot))

    return Answer(wait=wait, is_change=False)


def _describe_queues(body: SnapshotToTake) -> str:
    if body.queues is not msgspec.UNSET:
        return "chosen queues"
    within = f" in {body.vhost}" if body.vhost else ""
    text = body.name_contains
    return f'queues with "{text}" in their name{within}' if text else f"all queues{within}"


def _find_queues(request: ApiRequest, body: SnapshotToTake) -> Steps[list[Queue]]:
    """Return the chosen queues that the user may see; a few more than a snapshot can have if there are more."""
    vhosts = [request.broker.vhosts[name] for name in listed_vhosts(request.user, request.broker)]
    found: list[Queue] = []
    if body.queues is not msgspec.UNSET:
        by_name = {vhost.name: vhost for vhost in vhosts}
        for vhost_name, name in dict.fromkeys((each.vhost, each.name) for each in body.queues):
            queue = by_name[vhost_name].queues.get(name) if vhost_name in by_name else None
            if queue is not None and not queue.is_reply_address:
                found.append(queue)
        return found
    assert body.name_contains is not msgspec.UNSET
    wanted = body.name_contains.casefold()
    for vhost in vhosts:
        if body.vhost not in ("", vhost.name):
            continue
        for chunk in chunks(list(vhost.queues.values()), _QUEUES_PER_STEP):
            found += (
                queue
                for queue in chunk
                if wanted in queue.name.casefold() and not queue.is_reply_address
            )
            yield STEP_UNITS_MAX
            if len(found) > QUEUES_MAX_COUNT:
                return found
    return found


def _take_messages(request: ApiRequest, body: SnapshotToTake, name: str) -> Answer:
    refusal = find_refusal(Access.VHOST, request.user, body.vhost, request.broker)
    if refusal is not None:
        raise ApiError(401, "not_authorised", refusal)
    request.parameters |= {"vhost": body.vhost, "queue": name}
    queue = find_readable_queue(request)
    if not isinstance(queue, WorkQueue):
        raise bad_request("a stream keeps its messages: no action can be done with them")
    selection = request.message_access.parse_selector(body.selector)
    steps = find_positions(ReadyMessages(queue), selection, MESSAGES_MAX_COUNT + 1, request.now_ms)

    async def wait() -> Answer:
        positions = await run_broker_steps(request, steps)
        snapshot = ObjectSnapshot(
            request.user.name,
            f"messages with {body.selector}" if body.selector else "all messages",
            is_complete=len(positions) <= MESSAGES_MAX_COUNT,
        )
        snapshot.queue, snapshot.positions = queue, positions[:MESSAGES_MAX_COUNT]
        snapshot.message_count = len(snapshot.positions)
        settings = PeekSettings(
            SAMPLE_MAX_COUNT,
            GET_MAX_BYTES,
            body_bytes_max=request.message_access.body_bytes_max(SAMPLE_BODY_BYTES),
            message_filter=ChosenPositions(snapshot.positions[:SAMPLE_MAX_COUNT]),
        )
        reader = ReadyMessages(queue)
        snapshot.sample = await run_broker_steps(request, peek(reader, settings, request.now_ms))
        request.console.snapshots.add(snapshot)
        return Answer(201, body=_snapshot_object(request, snapshot))

    return Answer(wait=wait, is_change=False)


@API.add("GET", "/api/snapshots", Access.MANAGEMENT, content=Content.LIST)
def list_snapshots(request: ApiRequest) -> Answer:
    """List the snapshots of the user, the newest first."""
    entries = request.console.snapshots.list_of(request.user.name)
    return Answer(listing=Listing(entries, ObjectSnapshot.describe, lambda each: each.id))


@API.add("GET", "/api/snapshots/{snapshot}", Access.MANAGEMENT)
def get_snapshot(request: ApiRequest) -> Answer:
    """Return a snapshot with its count, a sample, and how far its action is."""
    return Answer(body=_snapshot_object(request, _find_snapshot(request)))


@API.add("DELETE", "/api/snapshots/{snapshot}", Access.MANAGEMENT)
def delete_snapshot(request: ApiRequest) -> Answer:
    """Stop the action of a snapshot at the next queue or batch, and forget the snapshot."""
    request.console.snapshots.remove(_find_snapshot(request))
    return NO_CONTENT


@API.add(
    "POST",
    "/api/snapshots/{snapshot}/run",
    Access.MANAGEMENT,
    answers=(200, 409),
    body=ActionToRun,
)
def run_action(request: ApiRequest) -> Answer:
    """Begin an action on all queues or messages of a snapshot. It goes on when the connection is closed.

    The permissions are those of the same action on each queue, and the audit log has a line for each.
    """
    snapshot, body = _find_snapshot(request), read_body(request, ActionToRun)
    if snapshot.progress is not None:
        raise ApiError(409, "conflict", "the snapshot was used: take another one")
    actions = _QUEUE_ACTIONS if snapshot.positions is None else _MESSAGE_ACTIONS
    if body.action not in actions:
        raise bad_request(f"action: one of {', '.join(actions)}")
    if (body.action == "move") != bool(body.destination):
        raise bad_request("destination: required for move, and only for move")
    details: dict[str, Any] = {}
    if body.destination:
        details["destination"] = body.destination
    if body.max_replays is not msgspec.UNSET and body.action == "replay":
        details["max_replays"] = body.max_replays
    if snapshot.positions is not None:
        details["snapshot"] = snapshot.id
    snapshot.progress = ActionProgress(
        body.action, body.destination or None, request.now_ms, totals={}, errors=[]
    )
    loop = request.console.server.loop
    background = msgspec.structs.replace(request, is_connected=lambda: True)
    snapshot.task = loop.create_task(
        _run(background, snapshot, snapshot.progress, actions[body.action], details)
    )
    return Answer(body=_snapshot_object(request, snapshot))


async def _run(
    request: ApiRequest,
    snapshot: ObjectSnapshot,
    progress: ActionProgress,
    how: tuple[str, str, str],
    details: dict[str, Any],
) -> None:
    method, ending, counted = how
    totals: Counter[str] = Counter()
    content = msgspec.json.encode(details) if method == "POST" else b""
    queues = snapshot.queues if snapshot.queue is None else (snapshot.queue,)
    try:
        for queue in queues:
            path = f"/api/queues/{quote(queue.vhost.name, safe='')}/{quote(queue.name, safe='')}"
            found = API.find(path + ending)
            assert found is not None
            try:
                answer = await _act(request, found[0][method], queue, content)
                if counted:
                    totals[counted] += answer.body[counted]
                    for reason, number in answer.body.get("kept", {}).items():
                        totals[reason] += number
                    progress.totals = dict(totals)
                    progress.stop_reason = answer.body["reason"] or progress.stop_reason
            except ApiError as error:
                progress.failed += 1
                if len(progress.errors) < ERRORS_MAX_COUNT:
                    entry = {"vhost": queue.vhost.name, "name": queue.name, "reason": str(error)}
                    progress.errors.append(entry)
            progress.done += 1
            await asyncio.sleep(0)
        await request.console.server.wait_until_durable()
    except Exception:
        progress.stop_reason = "an error has ended the action: see the log of the node"
        log.exception("error while running an action on a snapshot (action=%s)", progress.action)
    finally:
        progress.ended_at = max(
            progress.started_at, request.console.server.run_on_broker(_read_now)
        )


def _read_now(_broker: object, now: int) -> int:
    return now


async def _act(request: ApiRequest, route: ApiRoute, queue: Queue, content: bytes) -> Answer:
    """Do to one queue what a request of the same user would do now. Raises `ApiError`."""
    console = request.console
    if route.changes_definitions:
        await console.imports.wait_until_idle()
    user = request.user
    if not isinstance(user, TokenUser):
        current = console.broker.users.get(user.name)
        if current is None:
            raise ApiError(401, "not_authorised", "the user was deleted")
        user = current
    refusal = find_refusal(route.access, user, queue.vhost.name, console.broker)
    if refusal is not None:
        raise ApiError(401, "not_authorised", refusal)
    if queue.vhost.queues.get(queue.name) is not queue:
        raise ApiError(404, "not_found", "the queue was deleted")
    now = console.server.run_on_broker(_read_now)
    each = msgspec.structs.replace(
        request,
        user=user,
        method=route.method,
        parameters={"vhost": queue.vhost.name, "queue": queue.name},
        query={},
        content=content,
        now_ms=now,
    )
    with amqp_errors_as_answers():
        answer = console.handle(route, each)
    return answer if answer.wait is None else await answer.wait()


def _find_snapshot(request: ApiRequest) -> ObjectSnapshot:
    snapshot = request.console.snapshots.find(request.parameters["snapshot"], request.user.name)
    if snapshot is None:
        raise not_found()
    return snapshot


def _snapshot_object(request: ApiRequest, snapshot: ObjectSnapshot) -> dict[str, Any]:
    shown = request.message_access
    sample: list[dict[str, Any]]
    if snapshot.positions is not None:
        sample = [peeked_object(each, shown, "auto", SAMPLE_BODY_BYTES) for each in snapshot.sample]
    else:
        sample = [
            {
                "vhost": queue.vhost.name,
                "name": queue.name,
                "type": queue.declared_settings.queue_type,
                "messages_ready": queue.ready,
                "messages_unacknowledged": count_unacked(queue),
                "consumers": len(queue.consumers),
                "deleted": queue.vhost.queues.get(queue.name) is not queue,
            }
            for queue in snapshot.queues[:SAMPLE_MAX_COUNT]
        ]
    return {**snapshot.describe(), "sample": sample}
