"""Virtual hosts and their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from recado.broker.limits import VhostLimits
from recado.broker.queue import Queue
from recado.broker.scopes import TokenUser
from recado.broker.vhost import Vhost

from ..access import Access, visible_vhosts
from ..body import Integer, Texts, convert_field, read_body
from ..console import FULL_PERMISSION
from ..query import Listing
from ..request import CREATED, NO_CONTENT, Answer, ApiRequest, bad_request, not_found
from ..routes import API, Content
from .statistics import QUEUE_LENGTHS, counter_object, message_statistics


class VhostBody(msgspec.Struct):
    """The settings of a vhost; those that are absent stay as they are."""

    description: str | msgspec.UnsetType = msgspec.UNSET
    tags: Texts | msgspec.UnsetType = msgspec.UNSET
    default_queue_type: (
        Literal["classic", "quorum", "stream", "undefined", ""] | msgspec.UnsetType | None
    ) = msgspec.UNSET


class LimitBody(msgspec.Struct):
    """The value of a limit; a negative one means that there is no limit."""

    value: Integer


def vhost_object(request: ApiRequest, vhost: Vhost[Queue]) -> dict[str, Any]:
    """Return a vhost as RabbitMQ describes it; the numbers of messages are those of the newest sample."""
    settings = vhost.settings
    history = request.console.sampler.vhosts
    sampled = history.latest(vhost.name) or (0,) * len(history.fields)
    counters = dict(zip(history.fields, sampled, strict=True))
    lengths = {name: counters.pop(name) for name in QUEUE_LENGTHS}
    return {
        "name": vhost.name,
        "description": settings.description,
        "tags": list(settings.tags),
        "default_queue_type": settings.default_queue_type or "undefined",
        "metadata": {"description": settings.description, "tags": list(settings.tags)},
        "tracing": False,
        "cluster_state": {request.console.node_name: "running"},
        **counter_object(history, vhost.name, lengths, None),
        **message_statistics(history, vhost.name, counters, None),
    }


@API.add("GET", "/api/vhosts", Access.MANAGEMENT, content=Content.PAGES)
def list_vhosts(request: ApiRequest) -> Answer:
    """List the vhosts that the user may see."""
    names = visible_vhosts(request.user, request.broker)
    return Answer(
        listing=Listing(
            [request.broker.vhosts[name] for name in names],
            lambda vhost: vhost_object(request, vhost),
            lambda vhost: vhost.name,
            {"name": lambda vhost: vhost.name},
            lambda vhost: (vhost.name,),
        ),
    )


@API.add("GET", "/api/vhosts/{vhost}", Access.ADMINISTRATOR)
def get_vhost(request: ApiRequest) -> Answer:
    """Return one vhost."""
    return Answer(body=vhost_object(request, request.vhost()))


@API.add("PUT", "/api/vhosts/{vhost}", Access.ADMINISTRATOR, body=VhostBody)
def put_vhost(request: ApiRequest) -> Answer:
    """Create a vhost, or change its description, tags and default queue type.

    The user who creates a vhost gets all permissions in it.
    """
    name, broker = request.parameters["vhost"], request.broker
    body = read_body(request, VhostBody)
    if not name or len(name.encode()) > 255:
        raise bad_request("vhost: a name has 1 to 255 bytes")
    if name in broker.deleting_vhosts:
        raise bad_request(f"vhost '{name}' is being deleted; try again later")
    changes = _read_settings(body)
    created = name not in broker.vhosts
    if created:
        broker.add_vhost(name, persist=True)
        if not isinstance(request.user, TokenUser):  # whose permissions are those of its token
            creator = broker.users[request.user.name]
            everything = {**creator.permissions, name: FULL_PERMISSION}
            request.set_user(replace(creator, permissions=everything))
    settings = broker.vhosts[name].settings
    changed = replace(settings, **changes)
    if changed != settings:
        broker.configure_vhost(name, changed)
    return CREATED if created else NO_CONTENT


def _read_settings(body: VhostBody) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if body.description is not msgspec.UNSET:
        changes["description"] = body.description
    if body.tags is not msgspec.UNSET:
        tags = body.tags.split(",") if isinstance(body.tags, str) else body.tags
        changes["tags"] = tuple(tag.strip() for tag in tags if tag.strip())
    if body.default_queue_type is not msgspec.UNSET:
        queue_type = body.default_queue_type
        changes["default_queue_type"] = None if queue_type in ("", "undefined") else queue_type
    return changes


@API.add("DELETE", "/api/vhosts/{vhost}", Access.ADMINISTRATOR)
def delete_vhost(request: ApiRequest) -> Answer:
    """Delete a vhost with everything in it, and close its connections."""
    name = request.vhost().name
    request.console.close_connections(f"vhost '{name}' is deleted", vhost=name)
    deleted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_deleted() -> None:
        if not deleted.done():  # the client may have closed its connection
            deleted.set_result(None)

    request.broker.delete_vhost(name, request.now_ms, on_deleted)

    async def wait() -> Answer:
        await deleted
        return NO_CONTENT

    return Answer(wait=wait)


@API.add("POST", "/api/vhosts/{vhost}/start/{node}", Access.ADMINISTRATOR, answers=(204,))
def start_vhost(request: ApiRequest) -> Answer:
    """Start a vhost on a node; a vhost of recado always runs."""
    request.vhost()
    if request.parameters["node"] != request.console.node_name:
        raise not_found()
    return NO_CONTENT


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────


def _limits(vhosts: list[Vhost[Queue]]) -> Answer:
    limited = [vhost for vhost in vhosts if msgspec.to_builtins(vhost.settings.limits)]
    return Answer(
        listing=Listing(
            limited,
            lambda vhost: {
                "vhost": vhost.name,
                "value": msgspec.to_builtins(vhost.settings.limits),
            },
            lambda vhost: vhost.name,
            order=lambda vhost: (vhost.name,),
        )
    )


@API.add("GET", "/api/vhost-limits", Access.VISIBLE_VHOST, content=Content.LIST)
def list_vhost_limits(request: ApiRequest) -> Answer:
    """List the limits of the vhosts that the user may see."""
    names = visible_vhosts(request.user, request.broker)
    return _limits([request.broker.vhosts[name] for name in names])


@API.add("GET", "/api/vhost-limits/{vhost}", Access.VISIBLE_VHOST, content=Content.LIST)
def list_limits_of_vhost(request: ApiRequest) -> Answer:
    """List the limits of one vhost."""
    return _limits([request.vhost()])


@API.add(
    "PUT", "/api/vhost-limits/{vhost}/{name}", Access.ADMINISTRATOR, answers=(204,), body=LimitBody
)
def put_vhost_limit(request: ApiRequest) -> Answer:
    """Set a limit of a vhost; a negative value means no limit.

    The limits are `max-connections`, `max-queues`, `max-bindings` and `max-consumers`.
    """
    body, vhost = read_body(request, LimitBody), request.vhost()
    set_limits(request, vhost, vhost.settings.limits, {request.parameters["name"]: body.value})
    return NO_CONTENT


@API.add("DELETE", "/api/vhost-limits/{vhost}/{name}", Access.ADMINISTRATOR)
def delete_vhost_limit(request: ApiRequest) -> Answer:
    """Remove a limit of a vhost."""
    vhost = request.vhost()
    set_limits(request, vhost, vhost.settings.limits, {request.parameters["name"]: -1})
    return NO_CONTENT


def set_limits(
    request: ApiRequest, vhost: Vhost[Queue], limits: VhostLimits, values: Mapping[str, Any]
) -> None:
    """Give a vhost these limits with some of them replaced. Raises `ApiError` that names a wrong one."""
    known = {field.replace("_", "-"): field for field in VhostLimits.__struct_fields__}
    for name in values:
        if name not in known:
            raise bad_request(f"unknown limit '{name}': there are {', '.join(known)}")
        value = convert_field(name, values[name], Integer)
        limits = replace(limits, **{known[name]: None if value < 0 else value})
    request.broker.configure_vhost(vhost.name, replace(vhost.settings, limits=limits))
