"""The pages that Prometheus scrapes."""

from __future__ import annotations

from .. import metrics
from ..access import Access
from ..request import Answer, ApiRequest
from ..routes import API, METRICS


def _writer(request: ApiRequest) -> tuple[metrics.Writer, dict[str, str]]:
    openmetrics = "application/openmetrics-text" in request.accept
    kind = metrics.OPENMETRICS_FORMAT if openmetrics else metrics.TEXT_FORMAT
    return metrics.Writer(openmetrics=openmetrics), {"content-type": kind}


def _totals(request: ApiRequest) -> Answer:
    """Return the metrics of the node."""
    writer, headers = _writer(request)
    return Answer(stream=metrics.render_totals(request.console, writer), headers=headers)


def _objects(request: ApiRequest) -> Answer:
    """Return the metrics of the node, and of each queue, channel and connection."""
    writer, headers = _writer(request)
    return Answer(stream=metrics.render_objects(request.console, writer), headers=headers)


def _detailed(request: ApiRequest) -> Answer:
    """Return chosen families of metrics per object.

    The query has `family` and `vhost`, both repeatable, and `queue`, a pattern.
    """
    writer, headers = _writer(request)
    families, vhosts = request.repeated("family"), set(request.repeated("vhost"))
    pattern = request.query.get("queue")
    return Answer(
        stream=metrics.render_detailed(request.console, writer, families, vhosts, pattern),
        headers=headers,
    )


for _path, _handler in (
    ("/metrics", _totals),
    ("/metrics/per-object", _objects),
    ("/metrics/detailed", _detailed),
):
    API.add("GET", _path, Access.MONITORING)(_handler)
    METRICS.add("GET", _path, Access.PUBLIC)(_handler)
