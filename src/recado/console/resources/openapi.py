"""The description of the API for tools, in OpenAPI 3.1, generated from the table of routes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec

from recado import __version__

from ..access import Access
from ..events.types import EVENT_TYPES
from ..request import NAME_MAX_BYTES, Answer, ApiRequest
from ..routes import API, ApiRoute, Content

Schema = dict[str, Any]

PATH_PARAMETER: Final = re.compile(r"\{(\w+)\}")
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX_BYTES)]
PATH_PARAMETERS: Final[dict[str, tuple[str, Any]]] = {
    "vhost": ("The name of a vhost.", Name),
    "queue": ("The name of a queue.", Name),
    "exchange": ("The name of an exchange; `amq.default` is the default exchange.", Name),
    "source": ("The name of the exchange from which messages come.", Name),
    "destination": ("The name of the queue or exchange to which messages go.", Name),
    "destination_type": ("`q` for a queue, `e` for an exchange.", Literal["q", "e"]),
    "properties": ("The `properties_key` of the binding.", Name),
    "user": ("The name of a user.", Name),
    "name": ("The name of the policy, parameter or limit.", Name),
    "component": ("The component of the parameter.", Name),
    "connection": ("The name of a connection.", Name),
    "channel": ("The name of a channel.", Name),
    "node": ("The name of the node.", Name),
    "stream": ("The name of an event stream, which is in its first event.", Name),
    "snapshot": ("The id of a snapshot.", Name),
    "tap": ("The id of a live view of a queue.", Name),
    "trace": ("The id of a trace.", Name),
    "message": (
        "The number of a message in a trace.",
        Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)],
    ),
    "feed": ("The name of a feed.", Name),
    "subscriber": ("The name of a subscriber of the feed.", Name),
    "system": ("The name of an actor system.", Name),
    "pipeline": ("The name of a pipeline.", Name),
    "password": ("A password in plain text.", Name),
    "port": ("The number of a port.", Annotated[int, msgspec.Meta(ge=0, le=65_535)]),
    "protocol": ("The name of a protocol, such as `amqp091`.", Name),
    "within": ("How many units of time.", Annotated[int, msgspec.Meta(ge=0, le=99_999)]),
    "unit": ("The unit of time.", Literal["days", "weeks", "months", "years"]),
}
REQUIREMENTS: Final = {
    Access.PUBLIC: "No login is needed.",
    Access.MANAGEMENT: "Requires any of the four tags.",
    Access.VHOST: "Requires any tag and permissions in the vhost, or the tag administrator.",
    Access.VISIBLE_VHOST: "Requires any tag and permissions in the vhost, or the tag monitoring or administrator.",
    Access.MONITORING: "Requires the tag monitoring or administrator.",
    Access.POLICIES: "Requires the tag policymaker and permissions in the vhost, or the tag administrator.",
    Access.GLOBAL_PARAMETERS: "Requires the tag policymaker or administrator.",
    Access.ADMINISTRATOR: "Requires the tag administrator.",
}
SECURITY_SCHEMES: Final = {
    "basic": {"type": "http", "scheme": "basic"},
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
}
OBJECT: Final = {"type": "object"}
OBJECTS: Final = {"type": "array", "items": OBJECT}


class Error(msgspec.Struct):
    """Why a request failed."""

    error: str
    reason: str


class PageOfObjects(msgspec.Struct):
    """One page of a list."""

    items: list[dict[str, Any]]
    page: int
    page_count: int
    page_size: int
    item_count: int
    filtered_count: int
    total_count: int


@API.add("GET", "/api/openapi.json", Access.MANAGEMENT)
def get_description(request: ApiRequest) -> Answer:
    """Return this description."""
    return Answer(body=_encoded_description(), headers={"content-type": "application/json"})


@functools.cache
def _encoded_description() -> bytes:
    return msgspec.json.encode(describe(API.routes))


def describe(routes: Sequence[ApiRoute]) -> Schema:
    """Return the description of these routes."""
    bodies = {route.body for route in routes if _is_struct(route.body)}
    _, schemas = msgspec.json.schema_components(
        [Error, PageOfObjects, *sorted(bodies | EVENT_DATA, key=lambda each: str(each.__name__))],
        ref_template="#/components/schemas/{name}",
    )
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "recado management API",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{name: []} for name in SECURITY_SCHEMES],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": _describe_parameters(routes),
            "securitySchemes": SECURITY_SCHEMES,
            "responses": {
                "Error": {
                    "description": "The request failed.",
                    "content": {"application/json": {"schema": _reference(Error)}},
                },
                "Refusal": {
                    "description": "No credentials; or wrong ones, or ones that do not suffice, with an Error.",
                    "headers": {"www-authenticate": {"schema": {"type": "string"}}},
                },
            },
        },
    }


def _describe_operation(route: ApiRoute) -> Schema:
    _, _, rest = (inspect.getdoc(route.handler) or "").partition("\n")
    segments = re.findall(r"[\w-]+", route.path.removeprefix("/api"))
    operation: Schema = {
        "operationId": "_".join([route.method.lower(), *segments]).replace("-", "_"),
        "summary": route.summary,
        "description": " ".join([*rest.split(), REQUIREMENTS[route.access]]),
        "tags": [segments[0]],
        "parameters": _parameters_of(route),
        "responses": _describe_responses(route),
    }
    if route.access is Access.PUBLIC:
        operation["security"] = []
    if route.body is not None:
        is_struct = _is_struct(route.body)
        schema = _reference(route.body) if is_struct else OBJECT
        fields = msgspec.structs.fields(route.body) if is_struct else ()
        operation["requestBody"] = {
            "required": any(field.required for field in fields),
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _parameters_of(route: ApiRoute) -> list[Schema]:
    path = [f"path.{name}" for name in PATH_PARAMETER.findall(route.path)]
    query = [f"query.{parameter.name}" for parameter in route.query]
    return [{"$ref": f"#/components/parameters/{name}"} for name in path + query]


def _describe_parameters(routes: Sequence[ApiRoute]) -> Schema:
    described: Schema = {}
    for name in {name: None for route in routes for name in PATH_PARAMETER.findall(route.path)}:
        text, kind = PATH_PARAMETERS[name]
        described[f"path.{name}"] = {
            "name": name,
            "in": "path",
            "required": True,
            "description": text,
            "schema": msgspec.json.schema(kind),
        }
    for parameter in {each.name: each for route in routes for each in route.query}.values():
        schema = msgspec.json.schema(parameter.kind)
        described[f"query.{parameter.name}"] = {
            "name": parameter.name,
            "in": "query",
            "description": parameter.description,
            "schema": {"type": "array", "items": schema} if parameter.repeatable else schema,
        }
    return described


def _describe_responses(route: ApiRoute) -> Schema:
    described: Schema = {}
    for status in route.answers:
        response: Schema = {"description": HTTPStatus(status).phrase}
        if status not in (201, 204):
            response["content"] = _describe_content(route.content if status == 200 else None)
        described[str(status)] = response
    for status in _errors(route):
        name = "Refusal" if status == 401 else "Error"
        described.setdefault(str(status), {"$ref": f"#/components/responses/{name}"})
    return described


def _describe_content(content: Content | None) -> Mapping[str, Schema]:
    if content is Content.TEXT:
        return {name: {"schema": {"type": "string"}} for name in _METRICS_TYPES}
    if content is Content.EVENTS:
        return {"text/event-stream": {"schema": {"type": "string"}, "x-event-types": EVENT_SCHEMAS}}
    schema: Schema = OBJECT
    if content is Content.LIST:
        schema = OBJECTS
    elif content is Content.PAGES:
        schema = {"anyOf": [OBJECTS, _reference(PageOfObjects)]}
    return {"application/json": {"schema": schema}}


_METRICS_TYPES: Final = ("text/plain", "application/openmetrics-text")


def _errors(route: ApiRoute) -> list[int]:
    """Return the statuses of the errors that a route may answer."""
    statuses = [400]
    if route.access is not Access.PUBLIC:
        statuses += [401, 429]
    names_object = "{" in route.path or _names_vhost(route.body)
    if names_object or route.content is Content.EVENTS:
        statuses.append(404)
    if route.content is Content.EVENTS:
        statuses += [403, 503]  # requested by another site; too many streams
    if route.method != "GET":
        statuses += [403, 507]  # a change that another site requests; a full disk
    if route.method == "POST" and route.path.startswith("/api/definitions"):
        statuses.append(409)
    if route.body is not None:
        statuses += [408, 415]
    return sorted(statuses)


def _names_vhost(body: Any) -> bool:
    """Whether a request body names a vhost, which may not exist."""
    return _is_struct(body) and "vhost" in body.__struct_fields__


EVENT_DATA: Final = {each.data for each in EVENT_TYPES.values()}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _reference(kind: Any) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


EVENT_SCHEMAS: Final = {
    each.name: {"description": each.description, "data": _reference(each.data)}
    for each in EVENT_TYPES.values()
}
"""The data of each type of event. OpenAPI has no words for server-sent events, so this is an extension."""
