"""Actor systems and pipelines, by the status records that they publish.

A record can be seen by users who may see the vhost of the exchange that it was published to.
"""

from __future__ import annotations

from ..access import Access, visible_vhosts
from ..query import VHOST, Listing
from ..request import Answer, ApiRequest, not_found
from ..routes import API, Content
from ..status_table import StatusTable, StoredStatus


def _chosen_vhosts(request: ApiRequest) -> list[str]:
    """Return the vhosts whose records the request asks for and the user may see."""
    visible = visible_vhosts(request.user, request.broker)
    chosen = request.repeated(VHOST.name)
    return [name for name in visible if name in chosen] if chosen else visible


def _list(request: ApiRequest, table: StatusTable) -> Answer:
    return Answer(
        listing=Listing(
            list(table.read(_chosen_vhosts(request))),  # at most 1,000
            lambda stored: stored.describe(request.now_ms),
            lambda stored: stored.name,
            {
                "name": lambda stored: stored.name,
                "vhost": lambda stored: stored.vhost,
                "received_at": lambda stored: stored.received_ms,
                "stale": lambda stored: stored.is_stale(request.now_ms),
            },
            _order,
        )
    )


def _order(stored: StoredStatus) -> tuple[str, str]:
    return stored.vhost, stored.name


def _show(request: ApiRequest, table: StatusTable, name: str) -> Answer:
    stored = table.find(name, _chosen_vhosts(request))
    if stored is None:
        raise not_found()
    return Answer(body=stored.describe(request.now_ms, is_complete=True))


@API.add("GET", "/api/actors", Access.MANAGEMENT, content=Content.PAGES, query=(VHOST,))
def list_actor_systems(request: ApiRequest) -> Answer:
    """List the actor systems that publish their status, without their actors."""
    return _list(request, request.console.status.actors)


@API.add("GET", "/api/actors/{system}", Access.MANAGEMENT, query=(VHOST,))
def get_actor_system(request: ApiRequest) -> Answer:
    """Return one actor system with its actors, its last failures and the nodes that it communicates with.

    If systems of several vhosts have the name, it is the one that was heard last.
    """
    return _show(request, request.console.status.actors, request.parameters["system"])


@API.add("GET", "/api/pipelines", Access.MANAGEMENT, content=Content.PAGES, query=(VHOST,))
def list_pipelines(request: ApiRequest) -> Answer:
    """List the pipelines that publish their status."""
    return _list(request, request.console.status.pipelines)


@API.add("GET", "/api/pipelines/{pipeline}", Access.MANAGEMENT, query=(VHOST,))
def get_pipeline(request: ApiRequest) -> Answer:
    """Return one pipeline.

    If pipelines of several vhosts have the name, it is the one that was heard last.
    """
    return _show(request, request.console.status.pipelines, request.parameters["pipeline"])
