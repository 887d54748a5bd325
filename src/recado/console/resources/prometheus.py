"""The pages that Prometheus scrapes."""

from __future__ import annotations

from typing import Final

from ..access import Access
from ..metrics import pages
from ..metrics.exposition import OPENMETRICS_FORMAT, TEXT_FORMAT, Writer
from ..query import VHOST, QueryParameter
from ..request import Answer, ApiRequest
from ..routes import API, METRICS, Content

FAMILY: Final = QueryParameter("family", "A family of metrics.", repeatable=True)
QUEUE: Final = QueryParameter(
    "queue", "Only queues whose names match this regular expression (RE2)."
)


def _writer(request: ApiRequest) -> tuple[Writer, dict[str, str]]:
    openmetrics = "application/openmetrics-text" in request.accept
    kind = OPENMETRICS_FORMAT if openmetrics else TEXT_FORMAT
    return Writer(openmetrics=openmetrics), {"content-type": kind}


def _totals(request: ApiRequest) -> Answer:
    """Return the metrics of the node."""
    writer, headers = _writer(request)
    return Answer(stream=pages.render_totals(request.console, writer), headers=headers)


def _objects(request: ApiRequest) -> Answer:
    """Return the metrics of the node, and of each queue, channel and connection."""
    writer, headers = _writer(request)
    return Answer(stream=pages.render_objects(request.console, writer), headers=headers)


def _detailed(request: ApiRequest) -> Answer:
    """Return chosen families of metrics per object."""
    writer, headers = _writer(request)
    families, vhosts = request.repeated(FAMILY.name), set(request.repeated(VHOST.name))
    pattern = request.query.get(QUEUE.name)
    return Answer(
        stream=pages.render_detailed(request.console, writer, families, vhosts, pattern),
        headers=headers,
    )


for _path, _handler, _query in (
    ("/metrics", _totals, ()),
    ("/metrics/per-object", _objects, ()),
    ("/metrics/detailed", _detailed, (FAMILY, VHOST, QUEUE)),
):
    API.add("GET", _path, Access.MONITORING, content=Content.TEXT, query=_query)(_handler)
    METRICS.add("GET", _path, Access.PUBLIC, content=Content.TEXT, query=_query)(_handler)
