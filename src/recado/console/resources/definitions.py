"""Export and import of definitions, for the whole node and for one vhost.

An import is atomic: if any part of the document is invalid, nothing is changed. With `dry_run=true` nothing is
changed either, and the answer is the difference between the document and the broker. Both run in slices of the
event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from recado.definitions.difference import DefinitionsCheck
from recado.definitions.document import DefinitionsError
from recado.definitions.exporter import stream_definitions
from recado.definitions.importer import DefinitionsImport

from ..access import Access
from ..query import QueryParameter
from ..request import NO_CONTENT, Answer, ApiRequest, bad_request, storage_error
from ..routes import API

DOWNLOAD: Final = QueryParameter("download", "The name of the file that a browser stores.")
DRY_RUN: Final = QueryParameter(
    "dry_run", "Change nothing; answer 200 with the changes that the request would make.", bool
)


def _export(request: ApiRequest, vhost: str | None) -> Answer:
    name = request.query.get(DOWNLOAD.name)
    headers = {"content-disposition": f"attachment; filename={_clean(name)}"} if name else {}
    headers["content-type"] = "application/json"
    return Answer(stream=stream_definitions(request.broker, vhost), headers=headers)


def _clean(name: str) -> str:
    return "".join(each for each in name if each.isalnum() or each in "-_. ")[:100]


def _import_or_compare(request: ApiRequest, vhost: str | None) -> Answer:
    is_dry_run = DRY_RUN.is_true(request.query)
    return _compare(request, vhost) if is_dry_run else _import(request, vhost)


def _import(request: ApiRequest, vhost: str | None) -> Answer:
    console = request.console
    console.imports.check_idle()
    local = console.loopback_users
    work = DefinitionsImport(request.broker, _content(request), vhost=vhost, loopback_users=local)
    done = console.imports.start(work)

    async def wait() -> Answer:
        await _wait_for(done)
        return NO_CONTENT

    return Answer(wait=wait, outcome=lambda: {"imported": work.is_done})


def _compare(request: ApiRequest, vhost: str | None) -> Answer:
    imports = request.console.imports
    imports.check_idle()
    check = DefinitionsCheck(request.broker, _content(request), vhost=vhost)
    done = imports.start(check)

    async def wait() -> Answer:
        await _wait_for(done)
        headers = {"content-type": "application/json"}
        return Answer(stream=check.difference.render(), headers=headers)

    return Answer(wait=wait, is_change=False)


def _content(request: ApiRequest) -> bytes:
    return request.content or b"{}"


async def _wait_for(done: Awaitable[None]) -> None:
    try:
        await done
    except DefinitionsError as error:
        raise bad_request(str(error)) from error
    except OSError as error:
        raise storage_error(error) from error


@API.add("GET", "/api/definitions", Access.ADMINISTRATOR, query=(DOWNLOAD,))
def export_all(request: ApiRequest) -> Answer:
    """Export all definitions: users, vhosts, permissions, policies, exchanges, queues and bindings."""
    return _export(request, None)


@API.add("GET", "/api/all-configuration", Access.ADMINISTRATOR, query=(DOWNLOAD,))
def export_all_by_old_name(request: ApiRequest) -> Answer:
    """Export all definitions; an old name of `/api/definitions`."""
    return _export(request, None)


@API.add(
    "POST",
    "/api/all-configuration",
    Access.ADMINISTRATOR,
    answers=(200, 204),
    body=dict[str, Any],
    query=(DRY_RUN,),
)
@API.add(
    "POST",
    "/api/definitions",
    Access.ADMINISTRATOR,
    answers=(200, 204),
    body=dict[str, Any],
    query=(DRY_RUN,),
)
def import_all(request: ApiRequest) -> Answer:
    """Import definitions: all of them, or none if one is invalid."""
    return _import_or_compare(request, None)


@API.add("GET", "/api/definitions/{vhost}", Access.ADMINISTRATOR, query=(DOWNLOAD,))
def export_vhost(request: ApiRequest) -> Answer:
    """Export the definitions of one vhost."""
    return _export(request, request.vhost().name)


@API.add(
    "POST",
    "/api/definitions/{vhost}",
    Access.ADMINISTRATOR,
    answers=(200, 204),
    body=dict[str, Any],
    query=(DRY_RUN,),
)
def import_vhost(request: ApiRequest) -> Answer:
    """Import the definitions of one vhost: all of them, or none if one is invalid."""
    return _import_or_compare(request, request.vhost().name)
