"""The values of a hostile client: names, keys, patterns, tables, properties, bodies.

All come from a `Random` that the caller seeds, so that a case can be reproduced. There are few names, so that
cases use the same queues, and so that all of them can be deleted afterwards: the user of the fuzzer has no
permission for other names.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final, TypeVar

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import (
    FieldTable,
    FieldValue,
    Float32,
    Int8,
    Int16,
    Int64,
    LongString,
    ScaledDecimal,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
)

T = TypeVar("T")

LONG_NAME: Final = "fuzz-" + "x" * 250
NAMES: Final = (*(f"fuzz-{digit:x}" for digit in range(16)), LONG_NAME)
PERMITTED: Final = r"^(fuzz-[0-9a-f]|fuzz-x{250}|amq\..*)$"

KINDS: Final = ("direct", "fanout", "topic", "headers", "regex")
BUILT_IN: Final = ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match")
DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"

WORDS: Final = ("a", "b", "stock", "é", "", "*", "#", "a#", "x" * 60)
PATTERNS: Final = (
    "a.*",
    "(a+)+$",
    "(a|a)*b",
    r"(\w?\w?\w?){300}",
    "(a?){900}a{100}",
    "((a|b|[a-z]{1,3}x?){1,30}){1,9}.*",
    "(",
    "a{2000}",
    r"\pL+",
    r"\1",
    "[[:bad:]]",
    "(?=a)",
    "x" * 255,
)
# Milliseconds of the TTL of queues and messages: short, so that they expire during the run.
LIVES: Final = (0, 1, 10, 100, 1000)


def name(rng: Random) -> str:
    return rng.choice(NAMES)


def kind_of(exchange: str) -> str:
    """The same name usually has the same type, so that declarations agree with each other."""
    return KINDS[sum(exchange.encode()) % len(KINDS)]


def source(rng: Random) -> str:
    """An exchange to publish to or to bind to."""
    return rng.choice(BUILT_IN) if rng.random() < 0.3 else name(rng)


def key(rng: Random) -> str:
    """A routing key or pattern that fits into a short string."""
    match rng.randrange(5):
        case 0:
            return name(rng)
        case 1:
            return rng.choice(PATTERNS)
        case 2:
            return ".".join(["#", "a"] * rng.randrange(1, 60))
        case 3:
            return ("a." * rng.randrange(1, 120))[:-1]
        case _:
            return cut(".".join(rng.choices(WORDS, k=rng.randrange(6))))


def wrong(rng: Random, right: Iterable[T], wrong: Iterable[T]) -> T:
    """Mostly one of the right ones."""
    return rng.choice(list(wrong if rng.random() < 0.1 else right))


def cut(text: str, size: int = 255) -> str:
    return text.encode()[:size].decode(errors="ignore")


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def value(rng: Random, depth: int = 3) -> FieldValue:
    """Any value that a field table may hold, at the edges of its type as often as within."""
    made: tuple[FieldValue, ...] = (
        None,
        rng.random() < 0.5,
        Int8(rng.choice((-128, 0, 127))),
        UInt8(rng.choice((0, 255))),
        Int16(rng.choice((-(2**15), 2**15 - 1))),
        UInt16(rng.choice((0, 2**16 - 1))),
        rng.choice((-(2**31), -1, 0, 1, 2**31 - 1)),
        UInt32(rng.choice((0, 2**32 - 1))),
        Int64(rng.choice((-(2**63), 2**63 - 1, 0))),
        Timestamp(rng.choice((0, 2**64 - 1, 1_700_000_000))),
        Float32(rng.choice((0.0, float("inf"), 1.5))),
        rng.choice((float("nan"), -0.0, 1e308)),
        ScaledDecimal(rng.randrange(256), rng.choice((0, 2**32 - 1))),
        cut(key(rng)),
        LongString(b"\xff\xfe" * rng.randrange(1, 9)),
        rng.randbytes(rng.randrange(9)),
    )
    if depth and rng.random() < 0.2:
        if rng.random() < 0.5:
            return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
        return table(rng, depth - 1)
    return rng.choice(made)


def table(rng: Random, depth: int = 3) -> FieldTable:
    return {cut(key(rng), 20): value(rng, depth) for _ in range(rng.randrange(5))}


def queue_arguments(rng: Random) -> FieldTable:
    """Arguments that queues understand; now and then one of a wrong type."""
    offered: FieldTable = {
        "x-message-ttl": rng.choice(LIVES),
        "x-expires": rng.choice((1, 100, 10_000, 86_400_000)),
        "x-max-length": rng.choice((0, 1, 3, 100)),
        "x-max-length-bytes": rng.choice((0, 1, 1000, 100_000)),
        "x-overflow": wrong(rng, ("drop-head", "reject-publish", "reject-publish-dlx"), ("no",)),
        "x-dead-letter-exchange": source(rng),
        "x-dead-letter-routing-key": wrong(rng, (name(rng), key(rng)), ("k" * 300,)),
        "x-max-priority": wrong(rng, (0, 1, 10, 255), (256,)),
        "x-single-active-consumer": rng.random() < 0.5,
        "x-queue-type": wrong(rng, ("classic",), ("quorum", "stream")),
        "x-queue-mode": "lazy",
        "x-unknown": value(rng),
    }
    chosen = rng.sample(sorted(offered), k=rng.randrange(5))
    arguments = {argument: offered[argument] for argument in chosen}
    if "x-dead-letter-routing-key" in arguments:
        arguments["x-dead-letter-exchange"] = source(rng)
    if chosen and rng.random() < 0.05:
        arguments[chosen[0]] = value(rng)
    return arguments


def binding_arguments(rng: Random) -> FieldTable:
    arguments = table(rng)
    if rng.random() < 0.5:
        arguments["x-match"] = wrong(rng, ("all", "any", "all-with-x", "any-with-x"), ("none",))
    if rng.random() < 0.1:
        arguments["x-dead-letter-binding"] = wrong(rng, (True, False), ("no",))
    return arguments


def deep_table(depth: int) -> bytes:
    """Return the wire form of nested tables of this depth, which our own encoder refuses."""
    inner = b""
    for _ in range(depth - 1):
        inner = b"\x01dF" + len(inner).to_bytes(4, "big") + inner
    return len(inner).to_bytes(4, "big") + inner


def wide_table(entries: int) -> bytes:
    fields = b"".join(b"\x04" + b"%04x" % i + b"V" for i in range(entries))
    return len(fields).to_bytes(4, "big") + fields


# ── messages ────────────────────────────────────────────────────────────────────────────────────


def headers(rng: Random) -> FieldTable:
    made = table(rng)
    if rng.random() < 0.2:
        keys: list[FieldValue] = [key(rng) for _ in range(rng.choice((1, 3, 50)))]
        lists: tuple[FieldValue, ...] = (["a." * 2000], "no list", [1])
        made[rng.choice(("CC", "BCC"))] = wrong(rng, (keys,), lists)
    if rng.random() < 0.1:
        death: FieldTable = {"queue": name(rng), "reason": "expired", "count": value(rng, 0)}
        made["x-death"] = [death] * rng.choice((1, 2, 100))
    return made


def properties(rng: Random) -> bytes:
    """A property list as on the wire, with any subset of the fourteen."""
    if rng.random() < 0.5:
        return b"\0\0"
    offered: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": key(rng),
        "headers": headers(rng),
        "delivery_mode": wrong(rng, (1, 2), (0, 255)),
        "priority": rng.choice((0, 5, 10, 255)),
        "correlation_id": key(rng),
        "reply_to": wrong(rng, (name(rng),), (DIRECT_REPLY,)),
        "expiration": wrong(rng, map(str, LIVES), ("-1", "--5", "", "soon", "9" * 40)),
        "message_id": key(rng),
        "timestamp": rng.choice((0, 2**64 - 1)),
        "type": key(rng),
        "user_id": wrong(rng, ("fuzz",), ("witness", "")),
        "app_id": key(rng),
        "cluster_id": key(rng),
    }
    chosen = rng.sample(sorted(offered), k=rng.randrange(1, 5))
    return encode_properties(Properties(**{each: offered[each] for each in chosen}))


def body(rng: Random) -> bytes:
    size = rng.choice((0, 1, 16, 16, 16, 16, 100, 100, 1000, 1000, 5000, 40_000))
    return bytes((rng.randrange(256),)) * size
