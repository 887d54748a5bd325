"""The newest lines of the audit log."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final

import msgspec

from ..access import Access
from ..audit import AuditEntry
from ..query import COUNT, Listing, QueryParameter, Steps, parse_count, parse_number
from ..request import Answer, ApiRequest
from ..routes import API, Content

LINES_PER_STEP: Final = 16  # to decode and compare: 2 µs each
USER: Final = QueryParameter("user", "Only changes by this user.")
ACTION: Final = QueryParameter(
    "action", "Only actions whose method, path or summary contains this text, in any case."
)
OBJECT: Final = QueryParameter(
    "object", "Only objects one of whose names contains this text, in any case."
)
BEFORE: Final = QueryParameter(
    "before", "Only lines before the one with this number.", Annotated[int, msgspec.Meta(ge=1)]
)

_Line = tuple[int, AuditEntry]


@API.add(
    "GET",
    "/api/audit",
    Access.ADMINISTRATOR,
    content=Content.LIST,
    query=(USER, ACTION, OBJECT, BEFORE, COUNT),
)
def list_audit_log(request: ApiRequest) -> Answer:
    """List the newest lines of the audit log, the newest first; those since the start of the node that are kept."""
    before, count = parse_number(request.query, BEFORE.name), parse_count(request.query)

    async def wait() -> Answer:
        found = await request.console.slices.run(_select(request, before, count))
        return Answer(listing=Listing(found, _line_object, lambda each: each[1].user))

    return Answer(wait=wait)


def _select(request: ApiRequest, before: int | None, count: int) -> Steps[list[_Line]]:
    user, action, name = (
        request.query.get(each.name, "").casefold() for each in (USER, ACTION, OBJECT)
    )
    found: list[_Line] = []
    for index, (number, entry) in enumerate(request.console.audit.read(before)):
        if index % LINES_PER_STEP == 0:
            yield
        if user and entry.user.casefold() != user:
            continue
        if action and action not in f"{entry.action}\n{_summarize(entry)}".casefold():
            continue
        if name and not any(name in each.casefold() for each in entry.object.values()):
            continue
        found.append((number, entry))
        if len(found) == count:
            break
    return found


def _summarize(entry: AuditEntry) -> str:
    """Return what the action does, in a sentence."""
    return _summaries().get(entry.action, "")


@functools.cache
def _summaries() -> dict[str, str]:
    return {f"{route.method} {route.path}": route.summary for route in API.routes}


def _line_object(line: _Line) -> dict[str, Any]:
    number, entry = line
    described: dict[str, Any] = {
        "number": number,
        "at": entry.at,
        "user": entry.user,
        "address": entry.address,
        "action": entry.action,
        "summary": _summarize(entry),
        "object": entry.object,
    }
    if entry.details is not None:
        described["details"] = entry.details
    return described
