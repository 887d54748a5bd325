"""Bodies made to harm, on both brokers: each becomes an invalid message with the reason, and the worker continues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from recado.patterns import Message, Messaging, Translators
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from workshop.peers import Server

MIB_BYTES: Final = 1 << 20
ENTITIES: Final = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
ALIASES: Final = "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 10}]\n" for n in range(1, 10))


class StrictOrder(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    note: str = ""


HOSTILE: Final[list[tuple[str, bytes, str]]] = [
    (
        "application/xml",
        f'<!DOCTYPE a [<!ENTITY l0 "ha">{ENTITIES}]><a><id>1</id><note>&l9;</note></a>'.encode(),
        "document type declarations are not accepted",
    ),
    ("application/xml", b"<a>" * MIB_BYTES, "nested deeper than 100 levels"),
    ("application/xml", b"<a>" + b"<b/>" * MIB_BYTES + b"</a>", "more than 100000 elements"),
    (
        "application/yaml",
        f"a0: &a0 [ha]\n{ALIASES}".encode(),
        "anchors and aliases are not accepted",
    ),
    ("application/yaml", b"[" * MIB_BYTES, "nested deeper than 100 levels"),
    (
        "application/yaml",
        b"!!python/object/apply:os.system [ls]",
        "tags are not accepted",
    ),
    ("application/json", b"[" * MIB_BYTES, "Expected `object`, got `array`"),
    ("application/json", b'{"id":1,"note":' + b"[" * MIB_BYTES, "Expected `str`, got `array`"),
    ("application/json", b'{"id":' + b"9" * MIB_BYTES + b"}", "Integer value out of range"),
    ("application/json", b'{"id":1,"other":2}', "unknown field `other`"),
    ("application/json; charset=utf-16", b'{"id":1}', "utf-16"),
    ("application/json; charset=punycode", b'{"id":1}', "unknown charset 'punycode'"),
    ("application/json", b'\xff{"id":1}', "cannot be decoded"),
    ("application/msgpack", b"\x91" * MIB_BYTES, "Expected `object`, got `array`"),
    ("application/msgpack", b"\xdf\xff\xff\xff\xff", "cannot be decoded"),
    ("application/x-protobuf", b"\x08\x01", "generated message class"),
    ("image/png", b"\x89PNG", "unknown content type 'image/png'"),
    ("text/plain", b"1", "text is read as str"),
    ("application/octet-stream", b"1", "it is read as bytes"),
    ("application/json", b" " * (12 * MIB_BYTES), "is larger than 11534336 bytes"),
]
HEADERS: Final[dict[str, Any]] = {
    "x-attempt": "many",
    "x-failure-history": 5,
    "x-delivery-count": [1],
    "traceparent": {"a": 1},
    "bytes": b"\xff",
    "time": datetime(2026, 11, 19, tzinfo=UTC),
    "nested": {"list": [None, True, {"a": 1}]},
}


@in_a_loop
async def test_each_becomes_an_invalid_message(server: Server, name: Callable[[str], str]) -> None:
    orders, invalid_queue = name("orders"), name("invalid")
    attacker = Messaging(server.url)
    app = Messaging(
        server.url,
        dead_letter=name("dead"),
        invalid=invalid_queue,
        translators=Translators(body_bytes_max=11 * MIB_BYTES),
    )
    seen, parked = Collected(), Collected()

    @app.subscribe(orders, retry=3)
    async def handle(order: StrictOrder) -> None:
        seen.add((order.id, len(order.note)))

    @attacker.subscribe(invalid_queue)
    async def collect(message: Message[bytes]) -> None:
        reason = message.headers["x-failure-reason"]
        parked.add((message.content_type, len(message.body), reason))

    async with attacker, app:
        for content_type, body, _ in HOSTILE:
            message = Message(body=body, content_type=content_type, headers=HEADERS)
            await attacker.publish(orders, message)
        large = StrictOrder(2, "x" * (10 * MIB_BYTES))
        for content_type in ("application/json", "application/xml", "application/yaml"):
            await app.publish(orders, Message(body=large, content_type=content_type))
        assert await seen.wait(3) == [(2, 10 * MIB_BYTES)] * 3
        found: Any = await parked.wait(len(HOSTILE))
    assert [each[:2] for each in found] == [(kind, len(body)) for kind, body, _ in HOSTILE]
    assert [
        (expected, reason)
        for (_, _, reason), (_, _, expected) in zip(found, HOSTILE, strict=True)
        if expected not in reason
    ] == []
