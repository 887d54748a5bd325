"""Definitions: valid and invalid documents; atomic import; export and re-import."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.values import FieldTable, Int64, ScaledDecimal, Timestamp
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.limits import UserLimits, VhostLimits
from recado.broker.queue import Queue
from recado.broker.store import MessageStore
from recado.broker.vhost import VhostSettings
from recado.definitions.document import (
    DefinitionsError,
    list_entries,
    parse_json,
    read_definition,
)
from recado.definitions.exporter import export_definitions
from recado.definitions.importer import import_definitions

HASH = "UU1zjQuor3tQas0CnOd1ZGu0JUBbnUQrySXDPzidz2yRGuAV"  # of guest, by RabbitMQ
ARGON2 = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHRzb21l$aGFzaGhhc2hoYXNoaGFzaA"

# As RabbitMQ 3.10 exports it over HTTP, but for the names.
DOCUMENT: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "rabbitmq_version": "3.10.8",
    "product_name": "RabbitMQ",
    "product_version": "3.10.8",
    "users": [
        {
            "name": "ana",
            "password_hash": HASH,
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator", "monitoring"],
            "limits": {},
        }
    ],
    "vhosts": [{"name": "/"}, {"name": "orders"}],
    "permissions": [
        {"user": "ana", "vhost": "orders", "configure": "^ana-", "write": ".*", "read": ".*"}
    ],
    "topic_permissions": [
        {"user": "ana", "vhost": "orders", "exchange": "amq.topic", "write": "^a", "read": ".*"}
    ],
    "parameters": [
        {
            "vhost": "orders",
            "component": "operator_policy",
            "name": "most",
            "value": {
                "pattern": ".*",
                "apply-to": "queues",
                "definition": {"max-length": 1000},
                "priority": 1,
            },
        }
    ],
    "global_parameters": [
        {"name": "cluster_name", "value": "shop"},
        {"name": "mqtt_port_to_vhost_mapping", "value": {"1883": "orders"}},
    ],
    "policies": [
        {
            "vhost": "orders",
            "name": "short",
            "pattern": r"^(?!amq\.)",
            "apply-to": "queues",
            "definition": {"message-ttl": 1000, "dead-letter-exchange": "dead"},
            "priority": 3,
        }
    ],
    "queues": [
        {
            "name": "new",
            "vhost": "orders",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-length": 5, "x-queue-type": "classic"},
        },
        {
            "name": "safe",
            "vhost": "orders",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum"},
        },
    ],
    "exchanges": [
        {
            "name": "dead",
            "vhost": "orders",
            "type": "headers",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "amq.fanout"},
        },
        {
            "name": "inner",
            "vhost": "orders",
            "type": "fanout",
            "durable": False,
            "auto_delete": False,
            "internal": True,
            "arguments": {},
        },
    ],
    "bindings": [
        {
            "source": "dead",
            "vhost": "orders",
            "destination": "new",
            "destination_type": "queue",
            "routing_key": "k",
            "arguments": {"x-match": "all", "a": 1, "b": [True, 1.5, {"c": "d"}]},
        },
        {
            "source": "dead",
            "vhost": "orders",
            "destination": "inner",
            "destination_type": "exchange",
            "routing_key": "",
            "arguments": {},
        },
    ],
}


class Diary(MessageStore):
    """Records calls of the durability port."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        self.kept.append(f"{kind} {vhost} {name}")

    def begin_atomic_group(self) -> None:
        self.kept.append("begin")

    def end_atomic_group(self) -> None:
        self.kept.append("end")


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def new_broker(store: MessageStore | None = None) -> Broker:
    return Broker(map(str, count(1)).__next__, store=store)


def document(**sections: object) -> dict[str, Any]:
    return deepcopy(DOCUMENT) | sections


def imported(broker: Broker, document: object, **options: Any) -> list[str]:
    return import_definitions(broker, document, 0, **options)


def fault(action: Callable[[], object]) -> str:
    with pytest.raises(DefinitionsError) as refused:
        action()
    return str(refused.value)


def by_content(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without order, and without the keys about the product."""
    return {
        section: sorted(json.dumps(entry, sort_keys=True) for entry in entries)
        for section, entries in document.items()
        if isinstance(entries, list)
    }


# ── D1: all of it ─────────────────────────────────────────────────────────────────────────────────────


def test_an_export_of_rabbitmq_is_imported(broker: Broker) -> None:
    assert imported(broker, DOCUMENT, loopback_users=("ana",)) == []
    vhost = broker.vhosts["orders"]
    assert broker.users["ana"] == User(
        "ana",
        HASH,
        ("administrator", "monitoring"),
        {"orders": Permission("^ana-", ".*", ".*")},
        {("orders", "amq.topic"): TopicPermission("^a", ".*")},
        loopback_only=True,
    )
    assert vhost.queues["new"].declared_settings.max_length == 5
    assert vhost.queues["new"].settings.message_ttl_ms == 1000
    assert vhost.queues["new"].settings.max_length == 5
    assert vhost.queues["safe"].settings.max_length == 1000
    assert vhost.queues["safe"].settings.queue_type == "quorum"
    assert vhost.exchanges["dead"].settings.alternate_exchange == "amq.fanout"
    assert vhost.exchanges["inner"].settings.internal
    assert len(vhost.exchanges["dead"].bindings) == 2


def test_imported_definitions_are_exported(broker: Broker) -> None:
    imported(broker, DOCUMENT)
    assert by_content(export_definitions(broker)) == by_content(DOCUMENT)


def test_tables_as_lists_of_pairs(broker: Broker) -> None:
    """`rabbitmqctl export_definitions` has them."""
    parameters = deepcopy(DOCUMENT["parameters"])
    parameters[0]["value"]["definition"] = [["max-length", 1000]]
    queues = deepcopy(DOCUMENT["queues"])
    queues[0]["arguments"] = []
    vhosts = [{"name": "orders", "limits": [], "metadata": {"description": "", "tags": []}}]
    imported(broker, document(parameters=parameters, queues=queues, vhosts=vhosts))
    assert broker.vhosts["orders"].queues["new"].settings.max_length == 1000


def test_a_type_beside_the_arguments(broker: Broker) -> None:
    queue = {"name": "q", "vhost": "/", "type": "quorum", "durable": True, "auto_delete": False}
    imported(broker, {"queues": [queue]})
    assert broker.vhosts["/"].queues["q"].settings.queue_type == "quorum"


@pytest.mark.parametrize("tags", ["administrator, monitoring", ["administrator", "monitoring"]])
def test_tags_as_text_or_list(broker: Broker, tags: object) -> None:
    imported(broker, {"users": [{"name": "a", "password_hash": "", "tags": tags}]})
    assert broker.users["a"].tags == ("administrator", "monitoring")


def test_a_document_of_one_vhost(broker: Broker) -> None:
    imported(broker, DOCUMENT)
    one = export_definitions(broker, "orders")
    assert "vhost" not in one["queues"][0]
    assert "users" not in one
    broker.add_vhost("again")
    imported(broker, one, vhost="again")
    assert export_definitions(broker, "again") == one
    assert fault(lambda: imported(broker, one)) == (
        "parameters[0] ('most'): has no vhost; to import the definitions of one vhost, name it"
        " (--vhost VHOST, or /api/definitions/VHOST)"
    )


def test_a_user_may_come_with_a_password_or_with_any_hash_that_we_check(broker: Broker) -> None:
    sha512 = {"password_hash": "A" * 92, "hashing_algorithm": "rabbit_password_hashing_sha512"}
    users = [
        {"name": "plain", "password": "secret"},
        {"name": "long", **sha512, "password_hash": "A" * 90 + "A="},
        {"name": "nobody", "password_hash": "", "tags": ""},
    ]
    imported(broker, {"users": users})
    assert len(broker.users["plain"].password_hash) == 48
    assert broker.users["nobody"].password_hash == ""
    exported = {user["name"]: user for user in export_definitions(broker)["users"]}
    assert exported["long"]["hashing_algorithm"] == "rabbit_password_hashing_sha512"


def test_a_hash_that_rabbitmq_does_not_know_has_a_key_of_its_own(broker: Broker) -> None:
    broker.add_user(User("ana", ARGON2))
    (user,) = export_definitions(broker)["users"]
    assert (user["password_hash"], user["recado_password_hash"]) == ("", ARGON2)
    other = new_broker()
    imported(other, export_definitions(broker))
    assert other.users == broker.users


def test_skipped_entries_are_reported(broker: Broker) -> None:
    notes = imported(
        broker,
        document(
            parameters=[{"vhost": "/", "component": "shovel", "name": "s", "value": {}}],
            vhosts=[{"name": "orders"}],
            exchanges=[exchange("amq.mine"), exchange("amq.topic"), exchange("")],
            queues=[queue("amq.gen-1")],
            bindings=[
                binding("amq.topic", "amq.gen-1"),
                binding("missing", "amq.topic", "exchange"),
                binding("", "amq.gen-1"),
            ],
            gadgets=[],
        ),
    )
    assert notes == [
        "gadgets: skipped, this key is not supported",
        "parameters[0] ('s'): skipped, parameters of shovel are not supported",
        "exchanges[0] ('amq.mine'): skipped, names with amq. are reserved",
        "queues[0] ('amq.gen-1'): skipped, names with amq. are reserved",
        "bindings[0] ('amq.gen-1'): skipped, there is no 'amq.gen-1' in '/'",
        "bindings[1] ('amq.topic'): skipped, there is no 'missing' in '/'",
        "bindings[2] ('amq.gen-1'): skipped, there is no 'amq.gen-1' in '/'",
    ]


def exchange(name: str, kind: str = "topic", **fields: object) -> dict[str, object]:
    return {
        "name": name, "vhost": "/", "type": kind, "durable": True, "auto_delete": False
    } | fields  # fmt: skip


def queue(name: object, **fields: object) -> dict[str, object]:
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False} | fields


def binding(source: str, end: str, kind: str = "queue", **fields: object) -> dict[str, object]:
    return {
        "source": source, "vhost": "/", "destination": end, "destination_type": kind,
        "routing_key": "",
    } | fields  # fmt: skip


def test_entities_that_are_not_in_the_document_stay(broker: Broker) -> None:
    broker.add_user(User("ana", "old", (), {"/": Permission()}))
    broker.add_user(User("bob"))
    imported(broker, DOCUMENT)
    assert set(broker.users) == {"ana", "bob"}
    assert set(broker.users["ana"].permissions) == {"/", "orders"}
    assert broker.users["ana"].password_hash == HASH


def test_bindings_of_the_default_exchange_are_there_anyway(broker: Broker) -> None:
    queues, bindings = [queue("q")], [binding("", "q", routing_key="q")]
    assert imported(broker, {"queues": queues, "bindings": bindings}) == []


# ── D2: or nothing ────────────────────────────────────────────────────────────────────────────────────


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"queues": {}}, "queues must be a list"),
    ({"queues": [3]}, "queues[0]: must be an object"),
    ({"queues": [queue(None)]}, "queues[0]: 'name' is missing"),
    ({"queues": [queue("")]}, "queues[0] (''): 'name' is empty"),
    ({"queues": [queue(3)]}, "queues[0]: 'name' must be a string"),
    ({"queues": [queue("q", durable="yes")]}, "queues[0] ('q'): 'durable' must be true or false"),
    ({"queues": [queue("q", arguments=3)]}, "queues[0] ('q'): 'arguments' must be an object"),
    ({"queues": [queue("q", arguments=[3])]}, "queues[0] ('q'): 'arguments' must be an object"),
    (
        {"queues": [queue("q", arguments={"a": 2**63})]},
        f"queues[0] ('q'): 'arguments' has {2**63}, which does not fit into 64 bits",
    ),
    (
        {"queues": [queue("q", arguments={"a": object})]},
        "queues[0] ('q'): 'arguments' has a type, which is not a JSON type",
    ),
    ({"queues": [queue("é" * 128)]}, f"queues[0] ('{'é' * 128}'): 'name' is longer than 255 bytes"),
    (
        {"queues": [queue("q", vhost="gone")]},
        "queues[0] ('q'): there is no vhost 'gone'; add it to the vhosts",
    ),
    (
        {"queues": [queue("good"), queue("q", arguments={"x-max-length": -1})]},
        (
            "queues[1] ('q'): PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'q' in vhost"
            " '/': {value_negative,-1}"
        ),
    ),
    (
        {"queues": [queue("there", arguments={"x-max-length": 5})]},
        (
            "queues[0] ('there'): PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue"
            " 'there' in vhost '/': received the value '5' of type 'long' but current is none;"
            " delete the existing one, or remove the entry from the file"
        ),
    ),
    (
        {"queues": [queue("mine")]},
        (
            "queues[0] ('mine'): RESOURCE_LOCKED - cannot obtain exclusive access to locked queue"
            " 'mine' in vhost '/'. It could be originally declared on another connection or the"
            " exclusive property value does not match that of the original declaration.;"
            " delete the existing one, or remove the entry from the file"
        ),
    ),
    (
        {"exchanges": [exchange("x", "x-recent-history")]},
        "exchanges[0] ('x'): COMMAND_INVALID - unknown exchange type 'x-recent-history'",
    ),
    (
        {"exchanges": [exchange("seen", "fanout")]},
        (
            "exchanges[0] ('seen'): PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'seen'"
            " in vhost '/': received 'fanout' but current is 'regex';"
            " delete the existing one, or remove the entry from the file"
        ),
    ),
    (
        {"bindings": [binding("seen", "there", routing_key="(")]},
        "bindings[0] ('there'): PRECONDITION_FAILED - invalid pattern '(': missing ): (",
    ),
    (
        {"bindings": [binding("seen", "there", "topic")]},
        "bindings[0] ('there'): 'destination_type' must be queue or exchange",
    ),
    (
        {"policies": [{"vhost": "/", "name": "p", "pattern": "", "definition": {"foo": 1}}]},
        "policies[0] ('p'): [{<<\"foo\">>,1}] are not recognised policy settings",
    ),
    (
        {"policies": [{"vhost": "/", "name": "p", "pattern": "", "priority": "1"}]},
        "policies[0] ('p'): 'priority' must be a number",
    ),
    (
        {"parameters": [{"vhost": "/", "component": "operator_policy", "name": "o", "value": 3}]},
        "parameters[0] ('o'): 'value' must be an object",
    ),
    (
        {"permissions": [{"user": "a", "vhost": "/", "configure": "(", "write": "", "read": ""}]},
        "permissions[0] ('a'): missing ): (",
    ),
    (
        {"permissions": [{"user": "a", "vhost": "/", "configure": "", "write": "", "read": ""}]},
        "permissions[0] ('a'): there is no user 'a'; add it to the users",
    ),
    ({"users": [{"name": "a"}]}, "users[0] ('a'): 'password_hash' is missing"),
    (
        {"users": [{"name": "a", "password_hash": "abcd"}]},
        "users[0] ('a'): 'password_hash' is not base64 of a salt and SHA-256 or SHA-512",
    ),
    (
        {
            "users": [
                {
                    "name": "a",
                    "password_hash": HASH,
                    "hashing_algorithm": "rabbit_password_hashing_md5",
                }
            ]
        },
        (
            "users[0] ('a'): the hashing algorithm rabbit_password_hashing_md5 is not supported;"
            " specify a password instead of its hash"
        ),
    ),
    (
        {"users": [{"name": "a", "password_hash": "", "tags": [3]}]},
        "users[0] ('a'): 'tags' must be a list of strings, or a string with commas",
    ),
    (
        {"users": [{"name": "a", "password_hash": "", "limits": {"max-queues": 1}}]},
        "users[0] ('a'): the limit 'max-queues' is not known; known are max-connections, max-channels",
    ),
    (
        {"vhosts": [{"name": "/", "limits": {"max-queues": 1.5}}]},
        "vhosts[0] ('/'): the limit 'max-queues' must be an integer",
    ),
    (
        {"vhosts": [{"name": "/", "limits": {"max-queues": True}}]},
        "vhosts[0] ('/'): the limit 'max-queues' must be an integer",
    ),
    (
        {
            "parameters": [
                {"vhost": "no", "component": "vhost-limits", "name": "limits", "value": {}}
            ]
        },
        "parameters[0] ('limits'): there is no vhost 'no'; add it to the vhosts",
    ),
    (
        {"vhosts": [{"name": "/", "metadata": {"description": 3}}]},
        "vhosts[0] ('/'): 'description' must be a string",
    ),
    (
        {"vhosts": [{"name": "/", "tags": {}}]},
        "vhosts[0] ('/'): 'tags' must be a list of strings, or a string with commas",
    ),
    ({"global_parameters": [{"name": "a"}]}, "global_parameters[0] ('a'): 'value' is missing"),
    (
        {"global_parameters": [{"name": "a", "value": {"b": object()}}]},
        (
            "global_parameters[0] ('a'): 'value' is not a JSON value: Encoding objects of type"
            " object is unsupported"
        ),
    ),
    (
        {"vhosts": [{"name": "/", "default_queue_type": "fifo"}]},
        "vhosts[0] ('/'): 'default_queue_type' must be one of classic, quorum, stream",
    ),
]


@pytest.mark.parametrize(("sections", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_an_error_names_its_location_and_changes_nothing(
    sections: dict[str, Any], text: str
) -> None:
    diary = Diary()
    broker = new_broker(diary)
    vhost = broker.vhosts["/"]
    broker.create_queue(vhost, "there", QueueSettings(durable=True), None, 0)
    broker.create_queue(vhost, "mine", QueueSettings(exclusive=True), broker, 0)
    vhost.declare_exchange("seen", "regex", durable=True)
    vhost.bind_queue("there", "seen", "a+")
    before = export_definitions(broker)
    wanted = {"vhosts": [{"name": "new"}], "exchanges": [exchange("good")]} | sections
    assert fault(lambda: imported(broker, wanted)) == text
    assert export_definitions(broker) == before
    assert diary.kept == []
    assert list(broker.exclusive_queues) == [vhost.queues["mine"]]


def test_an_import_is_staged_before_it_is_applied() -> None:
    diary = Diary()
    imported(new_broker(diary), DOCUMENT)
    part, committed = "import  00000000", "import  committed"
    assert diary.kept[:3] == [part, committed, "begin"]
    assert diary.kept[-3:] == [part, "end", committed]
    assert {"vhost orders ", "user  ana", "policy orders short", "operator_policy orders most"} < {
        *diary.kept
    }


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "definitions must be an object with lists such as queues"),
        ({"a": 1}, "the document has no definitions: it has none of users, vhosts, permissions, "),
    ],
)
def test_invalid_documents(broker: Broker, document: object, text: str) -> None:
    assert fault(lambda: imported(broker, document)).startswith(text)


@pytest.mark.parametrize("text", ["{", '{"queues": [}', b"\xff"])
def test_invalid_json(text: str | bytes) -> None:
    assert fault(lambda: parse_json(text)).startswith("not valid JSON: ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(("name", "vhost", "durable", "arguments", "definition", "value")),
                inner,
            )
        ),
    )
)
def test_nonsense_is_a_definitions_error(nonsense: Any) -> None:
    for section in DOCUMENT:
        for wanted in (nonsense, [nonsense]):
            with suppress(DefinitionsError):
                for entry in list_entries({section: wanted, "queues": wanted}, "/")[0]:
                    read_definition(entry)


# ── limits and default types ──────────────────────────────────────────────────────────────────────────


def vhost_limits(vhost: str = "/", **limits: object) -> dict[str, object]:
    """The parameter that RabbitMQ has for them."""
    value = {key.replace("_", "-"): limit for key, limit in limits.items()}
    return {"vhost": vhost, "component": "vhost-limits", "name": "limits", "value": value}


def test_limits_are_imported_and_exported(broker: Broker) -> None:
    limits = {"max-connections": 5, "max-channels": 0}
    users = [{"name": "ana", "password_hash": HASH, "limits": limits}]
    parameters = [vhost_limits("orders", max_connections=7, max_queues=3)]
    notes = imported(broker, document(users=users, parameters=parameters))
    assert notes == []
    assert broker.users["ana"].limits == UserLimits(5, 0)
    assert broker.vhosts["orders"].settings == VhostSettings(limits=VhostLimits(7, 3))
    exported = export_definitions(broker)
    assert exported["users"][0]["limits"] == limits
    assert exported["parameters"] == parameters
    assert exported["vhosts"] == [{"name": "/"}, {"name": "orders"}]
    again = new_broker()
    imported(again, parse_json(json.dumps(exported)))
    assert export_definitions(again) == exported


def test_limits_of_a_vhost_beside_its_name(broker: Broker) -> None:
    vhosts = [{"name": "/", "limits": [["max-queues", 1]]}, {"name": "b", "limits": {}}]
    imported(broker, {"vhosts": vhosts})
    assert broker.vhosts["/"].settings.limits == VhostLimits(max_queues=1)
    imported(broker, {"parameters": [vhost_limits(max_queues=2)], "vhosts": vhosts})
    assert broker.vhosts["/"].settings.limits == VhostLimits(max_queues=2)


def test_a_negative_limit_is_none(broker: Broker) -> None:
    imported(broker, {"parameters": [vhost_limits(max_queues=-1, max_connections=-5)]})
    assert broker.vhosts["/"].settings.limits == VhostLimits()
    assert export_definitions(broker)["parameters"] == []


def test_limits_that_the_document_does_not_mention_stay(broker: Broker) -> None:
    broker.add_user(User("ana", limits=UserLimits(max_channels=1)))
    broker.configure_vhost("/", VhostSettings("quorum", VhostLimits(max_queues=1)))
    ana = {"name": "ana", "password_hash": HASH}
    imported(broker, {"users": [ana], "vhosts": [{"name": "/", "limits": [], "metadata": {}}]})
    assert broker.users["ana"].limits == UserLimits(max_channels=1)
    assert broker.vhosts["/"].settings == VhostSettings("quorum", VhostLimits(max_queues=1))
    imported(broker, {"users": [{**ana, "limits": {}}], "parameters": [vhost_limits()]})
    assert broker.users["ana"].limits == UserLimits()
    assert broker.vhosts["/"].settings == VhostSettings("quorum")


def test_more_queues_than_the_limit_are_not_imported(broker: Broker) -> None:
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_queues=2)))
    imported(broker, {"queues": [queue("a"), queue("a"), queue("b"), queue("amq.c")]})
    imported(broker, {"queues": [queue("a"), queue("b")]})
    assert fault(lambda: imported(broker, {"queues": [queue("b"), queue("c")]})) == (
        "queues: adding 1 to vhost '/' would exceed its limit of 2 (max-queues): it has 2; raise the"
        " limit, or remove queues from the file"
    )
    more = [queue("c"), queue("d")]
    imported(broker, {"queues": more, "parameters": [vhost_limits(max_queues=3)]})
    assert len(broker.vhosts["/"].queues) == 4


def test_more_bindings_than_the_limit_are_not_imported(broker: Broker) -> None:
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_bindings=1)))
    first, second = binding("amq.fanout", "a"), binding("amq.direct", "a")
    third = binding("amq.topic", "amq.fanout", "exchange")
    imported(broker, {"queues": [queue("a")], "bindings": [first, first]})
    imported(broker, {"bindings": [first]})
    assert fault(lambda: imported(broker, {"bindings": [first, second]})).endswith(
        "cannot bind 'a' to exchange 'amq.direct': binding limit in vhost '/' (1) is reached"
    )
    assert broker.vhosts["/"].binding_count == 1
    more = [second, third]
    imported(broker, {"bindings": more, "parameters": [vhost_limits(max_bindings=2)]})
    assert broker.vhosts["/"].binding_count == 3
    broker.check()


@pytest.mark.parametrize(
    "entry",
    [
        {"default_queue_type": "quorum"},
        {"metadata": {"description": "", "tags": [], "default_queue_type": "quorum"}},
        {"default_queue_type": "quorum", "metadata": [["default_queue_type", "quorum"]]},
        {"default_queue_type": "classic", "metadata": {"default_queue_type": "quorum"}},
    ],
)
def test_the_default_queue_type_is_imported_and_exported(
    broker: Broker, entry: dict[str, object]
) -> None:
    queues = [queue("q"), queue("old", type="classic"), queue("brief", durable=False)]
    assert imported(broker, {"vhosts": [{"name": "/", **entry}], "queues": queues}) == []
    found = {name: each.declared_settings for name, each in broker.vhosts["/"].queues.items()}
    assert {name: declared.queue_type for name, declared in found.items()} == {
        "q": "quorum",
        "old": "classic",
        "brief": "classic",
    }
    exported = export_definitions(broker)
    assert exported["vhosts"] == [
        {
            "name": "/",
            "default_queue_type": "quorum",
            "metadata": {"default_queue_type": "quorum"},
        }
    ]
    again = new_broker()
    imported(again, parse_json(json.dumps(exported)))
    assert {n: each.declared_settings for n, each in again.vhosts["/"].queues.items()} == found
    assert export_definitions(again) == exported


@pytest.mark.parametrize("none", [None, "undefined"])
def test_no_default_queue_type(broker: Broker, none: object) -> None:
    imported(broker, {"vhosts": [{"name": "/", "default_queue_type": none}]})
    assert broker.vhosts["/"].settings == VhostSettings()


def test_settings_of_a_document_of_one_vhost(broker: Broker) -> None:
    one = {
        "queues": [],
        "default_queue_type": "stream",
        "limits": {"max-queues": 4},
        "metadata": {},
    }
    imported(broker, one, vhost="/")
    assert broker.vhosts["/"].settings == VhostSettings("stream", VhostLimits(max_queues=4))
    exported = export_definitions(broker, "/")
    again = new_broker()
    again.add_vhost("b")
    imported(again, exported, vhost="b")
    assert again.vhosts["b"].settings == broker.vhosts["/"].settings


def test_description_and_tags_of_a_vhost(broker: Broker) -> None:
    long = "d" * 300
    vhosts = [
        {"name": "a", "metadata": {"description": long, "tags": ["x", "y"]}, "description": "old"},
        {"name": "b", "description": "beside", "tags": "x, y"},
        {"name": "c", "metadata": [["description", ""], ["tags", []]]},
    ]
    assert imported(broker, {"vhosts": vhosts}) == []
    assert broker.vhosts["a"].settings == VhostSettings(description=long, tags=("x", "y"))
    assert broker.vhosts["b"].settings == VhostSettings(description="beside", tags=("x", "y"))
    assert broker.vhosts["c"].settings == VhostSettings()
    exported = export_definitions(broker)
    metadata = {"description": "beside", "tags": ["x", "y"]}
    assert exported["vhosts"][2] == {"name": "b", **metadata, "metadata": metadata}
    again = new_broker()
    imported(again, parse_json(json.dumps(exported)))
    assert export_definitions(again) == exported
    imported(again, {"vhosts": [{"name": "b"}, {"name": "a", "metadata": {"tags": []}}]})
    assert again.vhosts["b"].settings == broker.vhosts["b"].settings, "it was not mentioned"
    assert again.vhosts["a"].settings == VhostSettings(description=long)
    one = export_definitions(broker, "b")
    assert imported(again, one, vhost="c") == []
    assert again.vhosts["c"].settings == broker.vhosts["b"].settings


# ── global parameters ─────────────────────────────────────────────────────────────────────────────────


def test_global_parameters_are_set_and_others_stay() -> None:
    diary = Diary()
    broker = new_broker(diary)
    broker.set_global_parameter("cluster_name", "old")
    broker.set_global_parameter("other", [1])
    values = {"cluster_name": "new", "none": None, "nested": {"a": [1, 1.5, {"b": False}]}}
    entries = [{"name": name, "value": value} for name, value in values.items()]
    assert imported(broker, {"global_parameters": entries}) == []
    assert broker.global_parameters == {"other": [1], **values}
    written = [f"global  {name}" for name in values]
    assert diary.kept[-7:] == ["begin", *written, "import  00000000", "end", "import  committed"]
    exported = {
        each["name"]: each["value"] for each in export_definitions(broker)["global_parameters"]
    }
    assert exported == broker.global_parameters
    assert "global_parameters" not in export_definitions(broker, "/"), "as in RabbitMQ"


def test_the_identity_of_a_cluster_is_not_copied(broker: Broker) -> None:
    entry = {"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-qFXB"}
    assert imported(broker, {"global_parameters": [entry]}) == []
    assert broker.global_parameters == {}
    broker.set_global_parameter("internal_cluster_id", "mine")
    assert export_definitions(broker)["global_parameters"] == []


def test_a_failed_import_leaves_global_parameters(broker: Broker) -> None:
    broker.set_global_parameter("cluster_name", "old")
    parameters = [{"name": "cluster_name", "value": "new"}]
    wrong = [queue("q", arguments={"x-max-length": -1})]
    fault(lambda: imported(broker, {"global_parameters": parameters, "queues": wrong}))
    assert broker.global_parameters == {"cluster_name": "old"}


# ── D3: once more ─────────────────────────────────────────────────────────────────────────────────────


def test_importing_again_changes_nothing(broker: Broker) -> None:
    imported(broker, DOCUMENT)
    before = export_definitions(broker)
    for again in (DOCUMENT, before):
        imported(broker, again)
        assert export_definitions(broker) == before


def test_a_binding_that_a_client_made_is_not_made_twice(broker: Broker) -> None:
    """A client's integers have 32 bits, those of the document 64."""
    vhost = broker.vhosts["/"]
    broker.create_queue(vhost, "q", QueueSettings(), None, 0)
    vhost.bind_queue("q", "amq.headers", "", {"x-match": "any", "a": 1})
    imported(broker, export_definitions(broker))
    assert len(vhost.exchanges["amq.headers"].bindings) == 1


# ── export ────────────────────────────────────────────────────────────────────────────────────────────


def test_entities_that_clients_cannot_declare_are_not_exported(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    broker.create_queue(vhost, "amq.gen-1", QueueSettings(), None, 0)
    broker.create_queue(vhost, "mine", QueueSettings(exclusive=True), broker, 0)
    for name in ("amq.gen-1", "mine"):
        vhost.bind_queue(name, "amq.topic", "#", connection=broker)
    exported = export_definitions(broker)
    assert [exported[section] for section in ("queues", "exchanges", "bindings")] == [[], [], []]


def test_values_that_json_has_not(broker: Broker) -> None:
    arguments: FieldTable = {
        "a": Timestamp(5),
        "b": b"bytes",
        "c": datetime(1970, 1, 2, tzinfo=UTC),
        "d": ScaledDecimal(2, 150),
        "e": None,
        "f": [Int64(7), 1.5, True, {"g": "h"}],
    }
    settings = QueueSettings(arguments=arguments)
    broker.create_queue(broker.vhosts["/"], "q", settings, None, 0)
    (entry,) = export_definitions(broker)["queues"]
    assert json.loads(json.dumps(entry["arguments"])) == {
        "a": 5,
        "b": "bytes",
        "c": 86400,
        "d": 1.5,
        "e": None,
        "f": [7, 1.5, True, {"g": "h"}],
    }


# ── anything ──────────────────────────────────────────────────────────────────────────────────────────


NAMES = st.text(min_size=1, max_size=4).filter(lambda name: not name.startswith("amq."))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    queues=st.dictionaries(
        NAMES, st.tuples(st.booleans(), st.dictionaries(NAMES, VALUES, max_size=2))
    ),
    keys=st.lists(
        st.tuples(st.integers(0), st.text(max_size=2), st.dictionaries(NAMES, VALUES, max_size=2))
    ),
)
def test_an_export_makes_the_same_broker_again(queues: Any, keys: Any) -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    for name, (durable, arguments) in queues.items():
        settings = QueueSettings(durable=durable, arguments=arguments)
        broker.create_queue(vhost, name, settings, None, 0)
    for number, key, arguments in keys:
        if queues:
            name = list(queues)[number % len(queues)]
            vhost.bind_queue(name, "amq.direct", key, arguments)
    exported = export_definitions(broker)
    again = new_broker()
    assert imported(again, parse_json(json.dumps(exported))) == []
    assert export_definitions(again) == exported
    assert isinstance(again.vhosts["/"], type(vhost))
    assert all(isinstance(each, Queue) for each in again.vhosts["/"].queues.values())
