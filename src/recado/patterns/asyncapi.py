"""An AsyncAPI 3.0 document of the endpoints of a program.

Each endpoint becomes an operation, each queue, stream, and binding of an exchange a channel (AsyncAPI's word for a
destination), and each type a message with a JSON schema. Passwords of the broker's URL are left out.
"""

import re
from collections.abc import Iterable, Mapping
from inspect import getdoc
from typing import Any, Final, Literal

import msgspec

from recado.client import parse_url

from .destination import Destination, LogStream, PointToPoint, PublishSubscribe
from .feed_source import FeedSource, Source

ASYNCAPI_VERSION: Final = "3.0.0"
_BINDING_VERSION: Final = "0.3.0"
_EXCHANGE_TYPES: Final = ("topic", "direct", "fanout", "headers")  # that the binding knows
_SCHEMA_REFERENCE: Final = "#/components/schemas/{name}"


class EndpointDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint does with a destination, for its documentation.

    `key` is the binding key of an exchange. `reply_type` is None if there is no reply, and Any if the reply is
    not annotated. `function` is the handler, whose docstring is used.
    """

    name: str
    action: Literal["receive", "send"] = "receive"
    destination: Source
    key: str | None = None
    body_type: Any = Any
    reply_type: Any = None
    function: object = None


def describe_sending(
    name: str, destination: Destination, body_type: Any = Any
) -> EndpointDescription:
    """Return the description of what an endpoint sends to a destination."""
    return EndpointDescription(
        name=f"{name}-{destination.name}",
        action="send",
        destination=destination,
        body_type=body_type,
    )


def describe_endpoints(
    endpoints: Iterable[EndpointDescription],
    *,
    title: str,
    version: str,
    description: str = "",
    url: str | None = None,
) -> dict[str, Any]:
    """Return the AsyncAPI document of endpoints, ready to be encoded as JSON or YAML."""
    document = _AsyncApiDocument(endpoints)
    info = {"title": title, "version": version}
    if description:
        info["description"] = description
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": info,
        "defaultContentType": "application/json",
        **({} if url is None else {"servers": {"broker": _describe_server(url)}}),
        "channels": document.channels,
        "operations": document.operations,
        "components": {"messages": document.messages, "schemas": document.schemas},
    }


class _AsyncApiDocument:
    def __init__(self, endpoints: Iterable[EndpointDescription]) -> None:
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self._channel_ids: dict[tuple[type[Source], str, str | None], str] = {}
        described = list(endpoints)
        types = [t for each in described for t in (each.body_type, each.reply_type)]
        payloads, components = msgspec.json.schema_components(
            types, schema_hook=_model_schema, ref_template=_SCHEMA_REFERENCE
        )
        self.schemas = {name: _to_draft_7(schema) for name, schema in components.items()}
        for number, endpoint in enumerate(described):
            body, reply = map(_to_draft_7, payloads[2 * number : 2 * number + 2])
            self._add_operation(endpoint, body, reply)

    def _add_operation(
        self, endpoint: EndpointDescription, body: dict[str, Any], reply: dict[str, Any]
    ) -> None:
        channel = self._add_channel(endpoint.destination, endpoint.key)
        operation: dict[str, Any] = {
            "action": endpoint.action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "messages": [self._add_message(channel, endpoint.name, body)],
        }
        summary, _, description = (getdoc(endpoint.function) or "").partition("\n")
        if endpoint.function is not None and summary:
            operation["summary"] = summary
            if description.strip():
                operation["description"] = description.strip()
        name = _unique(_identifier(endpoint.name), self.operations)
        if endpoint.reply_type not in (None, type(None), Any):
            operation["reply"] = self._add_reply(name, reply)
        self.operations[name] = operation

    def _add_reply(self, operation: str, schema: dict[str, Any]) -> dict[str, Any]:
        channel = _unique(f"{operation}.reply", self.channels)
        self.channels[channel] = {"address": None, "messages": {}}
        return {
            "address": {"location": "$message.header#/reply_to"},
            "channel": {"$ref": f"#/channels/{channel}"},
            "messages": [self._add_message(channel, f"{operation}.reply", schema)],
        }

    def _add_channel(self, destination: Source, key: str | None) -> str:
        """Return the identifier of a channel, which is added if it is new."""
        place = (type(destination), destination.name, key)
        if place in self._channel_ids:
            return self._channel_ids[place]
        address = destination.name
        if isinstance(destination, PublishSubscribe):
            address = key or ""
        parts = [destination.name, *([key] if key else [])]
        name = _unique(_identifier(".".join(parts)), self.channels)
        self.channels[name] = {
            "address": address,
            "messages": {},
        }
        if isinstance(destination, FeedSource):
            self.channels[name]["x-feed"] = destination.name
        else:
            self.channels[name]["bindings"] = {"amqp": _describe_binding(destination)}
        if isinstance(destination, PublishSubscribe) and destination.type not in _EXCHANGE_TYPES:
            self.channels[name]["x-exchange-type"] = destination.type
        self._channel_ids[place] = name
        return name

    def _add_message(self, channel: str, name: str, schema: dict[str, Any]) -> dict[str, str]:
        """Return a reference to the message of a type in a channel, which is added if it is new."""
        reference = schema.get("$ref", "")
        start = _SCHEMA_REFERENCE.format(name="")
        message = _identifier(reference.removeprefix(start) if reference else name)
        described = {"name": message, "payload": schema}
        if not reference:
            message = _unique(message, self.messages)
        self.messages[message] = described
        messages = self.channels[channel]["messages"]
        messages[message] = {"$ref": f"#/components/messages/{message}"}
        return {"$ref": f"#/channels/{channel}/messages/{message}"}


def _describe_server(url: str) -> dict[str, Any]:
    parameters = parse_url(url)
    return {
        "host": f"{parameters.host}:{parameters.port}",
        "pathname": f"/{parameters.vhost}",
        "protocol": url.partition(":")[0],
        "protocolVersion": "0.9.1",
    }


def _describe_binding(destination: Destination) -> dict[str, Any]:
    if isinstance(destination, PointToPoint | LogStream):
        settings = {"durable": True, "exclusive": False, "autoDelete": False}
        queue = {"name": destination.name, **settings}
        return {"is": "queue", "queue": queue, "bindingVersion": _BINDING_VERSION}
    exchange: dict[str, Any] = {"name": destination.name, "durable": True, "autoDelete": False}
    if destination.type in _EXCHANGE_TYPES:
        exchange["type"] = destination.type
    return {"is": "routingKey", "exchange": exchange, "bindingVersion": _BINDING_VERSION}


def _model_schema(model: type) -> dict[str, Any]:
    """Return the schema of a class that msgspec does not know: that of a pydantic model, otherwise any value."""
    make = getattr(model, "model_json_schema", None)
    schema: dict[str, Any] = {"title": model.__name__} if make is None else make()
    return schema


def _to_draft_7(schema: Any) -> Any:
    """Return a JSON schema of draft 2020-12 as one of draft 7, on which AsyncAPI is based."""
    if isinstance(schema, list):
        return [_to_draft_7(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    converted = {name: _to_draft_7(value) for name, value in schema.items()}
    if "prefixItems" in converted:
        if "items" in converted:
            converted["additionalItems"] = converted["items"]
        converted["items"] = converted.pop("prefixItems")
    return converted


def _identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text) or "_"


def _unique(name: str, names: Mapping[str, object]) -> str:
    """Return the name, or the first of `name-2`, `name-3`, … that is free."""
    if name not in names:
        return name
    number = 2
    while f"{name}-{number}" in names:
        number += 1
    return f"{name}-{number}"
