"""The pages that Prometheus scrapes, and a Grafana dashboard for what it stores."""

from __future__ import annotations

import functools
from pathlib import Path
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
DASHBOARD: Final = Path(pages.__file__).with_name("grafana.json")  # written by workshop/grafana.py


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


@API.add("GET", "/api/grafana.json", Access.MANAGEMENT)
def get_dashboard(request: ApiRequest) -> Answer:
    """Return a Grafana dashboard for the metrics of recado, to be imported into Grafana."""
    return Answer(body=_read_dashboard(), headers={"content-type": "application/json"})


@functools.cache
def _read_dashboard() -> bytes:
    return DASHBOARD.read_bytes()
