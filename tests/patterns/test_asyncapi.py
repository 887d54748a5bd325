"""The AsyncAPI document is valid by the official schema, and its schemas describe the messages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from recado.patterns.asyncapi import EndpointDescription, describe_endpoints
from recado.patterns.destination import LogStream, PointToPoint, PublishSubscribe
from recado.patterns.messaging import Messaging
from recado.patterns.routing import ContentRouter

SCHEMA = json.loads((Path(__file__).parent / "vendor/asyncapi-3.0.0.json").read_text())


class Line(msgspec.Struct):
    product: str
    price: tuple[int, str] = (0, "EUR")


class Order(msgspec.Struct):
    id: int
    lines: list[Line]


@dataclasses.dataclass
class Receipt:
    number: int


class Model:
    """What a pydantic model offers."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "object", "title": "Model"}


def handle(order: Order) -> Receipt:
    """Accept an order.

    It is stored first.
    """
    raise NotImplementedError


def receive(name: str, destination: str, **fields: Any) -> EndpointDescription:
    return EndpointDescription(
        name=name, action="receive", destination=PointToPoint(destination), **fields
    )


def describe(*endpoints: EndpointDescription, url: str | None = None) -> dict[str, Any]:
    """The document, after checking that it is valid and that its references lead somewhere."""
    document = describe_endpoints(endpoints, title="Shop", version="1.2", url=url)
    document = msgspec.json.decode(msgspec.json.encode(document), type=dict[str, Any])
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    for reference in references(document):
        found = document
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
    return document


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_a_program_with_requests() -> None:
    document = describe(
        receive("handle", "orders", body_type=Order, reply_type=Receipt, function=handle),
        EndpointDescription(
            name="forward", action="send", destination=PublishSubscribe("events"), key="order.new",
            body_type=Order,
        ),
        url="amqps://ana:secret@broker.example.com:5671/shop",
    )  # fmt: skip
    assert "secret" not in json.dumps(document)
    assert document["servers"]["broker"] == {
        "host": "broker.example.com:5671",
        "pathname": "/shop",
        "protocol": "amqps",
        "protocolVersion": "0.9.1",
    }
    operation = document["operations"]["handle"]
    assert operation["summary"] == "Accept an order."
    assert operation["description"] == "It is stored first."
    assert operation["messages"] == [{"$ref": "#/channels/orders/messages/Order"}]
    assert operation["reply"]["messages"] == [{"$ref": "#/channels/handle.reply/messages/Receipt"}]
    assert document["channels"]["orders"]["address"] == "orders"
    event = document["channels"]["events.order.new"]
    assert event["address"] == "order.new"
    assert event["bindings"]["amqp"]["exchange"]["name"] == "events"
    assert sorted(document["components"]["schemas"]) == ["Line", "Order", "Receipt"]


def test_schemas_describe_the_messages() -> None:
    document = describe(receive("handle", "orders", body_type=Order))
    payload = document["components"]["messages"]["Order"]["payload"]
    validator = jsonschema.Draft7Validator({**payload, "components": document["components"]})
    order = msgspec.to_builtins(Order(7, [Line("pen", (3, "EUR"))]), str_keys=True)
    validator.validate(json.loads(json.dumps(order)))
    for wrong in ({"id": "7", "lines": []}, {"id": 7, "lines": [{"product": "pen", "price": [3]}]}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


def test_every_kind_of_destination() -> None:
    document = describe(
        receive("first", "jobs"),
        receive("second", "jobs", reply_type=Any),
        EndpointDescription(name="log", action="receive", destination=LogStream("history")),
        EndpointDescription(name="all", action="receive", destination=PublishSubscribe("events")),
        EndpointDescription(
            name="some", action="receive", destination=PublishSubscribe("keys", type="regex"), key="a|b",
        ),
    )  # fmt: skip
    channels = document["channels"]
    assert sorted(channels) == ["events", "history", "jobs", "keys.a_b"]
    assert sorted(channels["jobs"]["messages"]) == ["first", "second"]
    assert channels["keys.a_b"]["address"] == "a|b"
    assert channels["keys.a_b"]["x-exchange-type"] == "regex"
    assert "reply" not in document["operations"]["second"]
    assert document["components"]["messages"]["first"]["payload"] == {}
    assert "servers" not in document


def test_any_type_has_a_schema() -> None:
    document = describe(
        receive("text", "a", body_type=str),
        receive("raw", "b", body_type=bytes),
        receive("table", "c", body_type=dict[str, int]),
        receive("model", "d", body_type=Model),
        receive("either", "e", body_type=Line | None),
        receive("either", "f g", body_type=object),
    )
    messages = document["components"]["messages"]
    assert messages["text"]["payload"] == {"type": "string"}
    assert messages["model"]["payload"]["title"] == "Model"
    assert sorted(document["operations"]) == ["either", "either-2", "model", "raw", "table", "text"]
    assert document["channels"]["f_g"]["address"] == "f g"


def test_the_document_of_an_application() -> None:
    app = Messaging("amqp://ana:secret@broker.example.com", name="shop")
    app.subscribe("orders")(handle)
    app.listen("orders", tag="observe")(lambda message: None)
    app.flow("carts", ContentRouter({"json.gift": "gifts"}), to="orders", tag="sort")
    document = app.asyncapi(version="2", description="Sells pens.", sends=[("parcels", Line)])
    jsonschema.Draft7Validator(SCHEMA).validate(json.loads(json.dumps(document)))
    assert document["info"] == {"title": "shop", "version": "2", "description": "Sells pens."}
    actions = {name: each["action"] for name, each in document["operations"].items()}
    assert actions == {
        "handle": "receive",
        "observe": "receive",
        "sort": "receive",
        "sort-gifts": "send",
        "sort-orders": "send",
        "send-parcels": "send",
    }
    assert sorted(document["components"]["schemas"]) == ["Line", "Order", "Receipt"]
    assert Messaging().asyncapi(version="1")["info"]["title"] == "recado"


def test_an_empty_program() -> None:
    assert describe()["operations"] == {}
