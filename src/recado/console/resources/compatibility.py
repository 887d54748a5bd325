"""Resources of RabbitMQ that exist because scripts and tools request them.

recado has no plugins, feature flags or clients of the stream protocol, so their lists are always empty. `/api/reset`
does what it does in RabbitMQ.
"""

from __future__ import annotations

from ..access import Access
from ..request import NO_CONTENT, Answer, ApiRequest, bad_request, not_found
from ..routes import API, Content
from .overview import check_node


@API.add("GET", "/api/extensions", Access.MANAGEMENT, content=Content.LIST)
def list_extensions(request: ApiRequest) -> Answer:
    """List the extensions of RabbitMQ's web interface: none."""
    return Answer(body=[])


@API.add("GET", "/api/feature-flags", Access.MANAGEMENT, content=Content.LIST)
def list_feature_flags(request: ApiRequest) -> Answer:
    """List RabbitMQ's feature flags: all features are always there."""
    return Answer(body=[])


@API.add("PUT", "/api/feature-flags/{name}/enable", Access.ADMINISTRATOR)
def enable_feature_flag(request: ApiRequest) -> Answer:
    """Refuse to enable a feature flag: there are none."""
    raise bad_request(f"name: there is no feature flag '{request.parameters['name']}'")


@API.add("GET", "/api/deprecated-features", Access.MANAGEMENT, content=Content.LIST)
def list_deprecated_features(request: ApiRequest) -> Answer:
    """List deprecated features: none."""
    return Answer(body=[])


@API.add("GET", "/api/deprecated-features/used", Access.MANAGEMENT, content=Content.LIST)
def list_used_deprecated_features(request: ApiRequest) -> Answer:
    """List deprecated features in use: none."""
    return Answer(body=[])


@API.add("DELETE", "/api/reset", Access.ADMINISTRATOR)
def reset_statistics(request: ApiRequest) -> Answer:
    """Forget all time series; counters and rates go on."""
    request.console.sampler.clear()
    return NO_CONTENT


@API.add("DELETE", "/api/reset/{node}", Access.ADMINISTRATOR)
def reset_statistics_of_node(request: ApiRequest) -> Answer:
    """Forget all time series; counters and rates go on."""
    check_node(request)
    request.console.sampler.clear()
    return NO_CONTENT


# ── the stream protocol ─────────────────────────────────────────────────────────────────────────────


@API.add("GET", "/api/stream/connections", Access.MANAGEMENT, content=Content.LIST)
@API.add("GET", "/api/stream/publishers", Access.MANAGEMENT, content=Content.LIST)
@API.add("GET", "/api/stream/consumers", Access.MANAGEMENT, content=Content.LIST)
def list_stream_clients(request: ApiRequest) -> Answer:
    """List what uses RabbitMQ's stream protocol: nothing. Streams are read and written over AMQP."""
    return Answer(body=[])


@API.add("GET", "/api/stream/connections/{vhost}", Access.VHOST, content=Content.LIST)
@API.add("GET", "/api/stream/publishers/{vhost}", Access.VHOST, content=Content.LIST)
@API.add("GET", "/api/stream/consumers/{vhost}", Access.VHOST, content=Content.LIST)
def list_stream_clients_of_vhost(request: ApiRequest) -> Answer:
    """List what uses RabbitMQ's stream protocol in a vhost: nothing."""
    request.vhost()
    return Answer(body=[])


@API.add("GET", "/api/stream/publishers/{vhost}/{queue}", Access.VHOST, content=Content.LIST)
def list_stream_publishers_of_stream(request: ApiRequest) -> Answer:
    """List the publishers of a stream by RabbitMQ's stream protocol: none."""
    request.vhost()
    return Answer(body=[])


@API.add("GET", "/api/stream/connections/{vhost}/{connection}", Access.VHOST)
@API.add(
    "GET",
    "/api/stream/connections/{vhost}/{connection}/publishers",
    Access.VHOST,
    content=Content.LIST,
)
@API.add(
    "GET",
    "/api/stream/connections/{vhost}/{connection}/consumers",
    Access.VHOST,
    content=Content.LIST,
)
@API.add("DELETE", "/api/stream/connections/{vhost}/{connection}", Access.VHOST)
def find_stream_connection(request: ApiRequest) -> Answer:
    """Answer 404: no connection uses RabbitMQ's stream protocol."""
    raise not_found()
