"""Export and import of definitions, for the whole node and for one vhost.

An import is atomic: if any part of the document is invalid, nothing is changed. With `dry_run=true` the
document is only checked.
"""

from __future__ import annotations

from typing import Any, Final

from recado.definitions.document import DefinitionsError
from recado.definitions.exporter import stream_definitions
from recado.definitions.importer import copy_topology, import_definitions

from ..access import Access
from ..query import QueryParameter
from ..request import NO_CONTENT, Answer, ApiRequest, bad_request
from ..routes import API

DOWNLOAD: Final = QueryParameter("download", "The name of the file that a browser stores.")
DRY_RUN: Final = QueryParameter("dry_run", "Check the document without importing it.", bool)


def _export(request: ApiRequest, vhost: str | None) -> Answer:
    name = request.query.get(DOWNLOAD.name)
    headers = {"content-disposition": f"attachment; filename={_clean(name)}"} if name else {}
    headers["content-type"] = "application/json"
    return Answer(stream=stream_definitions(request.broker, vhost), headers=headers)


def _clean(name: str) -> str:
    return "".join(each for each in name if each.isalnum() or each in "-_. ")[:100]


def _import(request: ApiRequest, vhost: str | None) -> Answer:
    document = request.object()
    is_dry_run = DRY_RUN.is_true(request.query)
    broker = copy_topology(request.broker) if is_dry_run else request.broker
    try:
        import_definitions(
            broker,
            document,
            request.now_ms,
            vhost=vhost,
            loopback_users=request.console.loopback_users,
        )
    except DefinitionsError as error:
        raise bad_request(str(error)) from error
    return NO_CONTENT


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
    "/api/definitions",
    Access.ADMINISTRATOR,
    answers=(204,),
    body=dict[str, Any],
    query=(DRY_RUN,),
)
def import_all(request: ApiRequest) -> Answer:
    """Import definitions: all of them, or none if one is invalid."""
    return _import(request, None)


@API.add("GET", "/api/definitions/{vhost}", Access.ADMINISTRATOR, query=(DOWNLOAD,))
def export_vhost(request: ApiRequest) -> Answer:
    """Export the definitions of one vhost."""
    return _export(request, request.vhost().name)


@API.add(
    "POST",
    "/api/definitions/{vhost}",
    Access.ADMINISTRATOR,
    answers=(204,),
    body=dict[str, Any],
    query=(DRY_RUN,),
)
def import_vhost(request: ApiRequest) -> Answer:
    """Import the definitions of one vhost: all of them, or none if one is invalid."""
    return _import(request, request.vhost().name)
