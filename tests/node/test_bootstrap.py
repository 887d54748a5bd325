"""The users of a broker at its start, from several sources; and definitions of a running broker."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pika
import pytest

import recado
from recado.broker.access import User
from recado.broker.broker import Broker
from recado.node.bootstrap import populate
from recado.node.config import ConfigError, from_mapping

ANA = {"name": "ana", "password": "from the file", "tags": "management"}
CONFIGURED: dict[str, Any] = {"users": {"ana": {"password": "configured"}}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "definitions.json"


def populated(recalled: list[User], file: Path | None = None, **access: Any) -> dict[str, User]:
    broker = Broker(str)
    for user in recalled:
        broker.add_user(user)
    node = {} if file is None else {"definitions": str(file)}
    populate(broker, from_mapping({"access": access, "node": node}), 0)
    return broker.users


def test_guest_exists_unless_users_are_configured(file: Path) -> None:
    assert set(populated([])) == {"guest"}
    assert set(populated([], **CONFIGURED)) == {"ana"}
    file.write_text(json.dumps({"users": [ANA]}))
    assert set(populated([], file)) == {"ana"}
    file.write_text(json.dumps({"vhosts": []}))
    assert set(populated([], file)) == {"guest"}


def test_guest_does_not_return_once_users_were_imported() -> None:
    assert set(populated([User("ana", "hash")])) == {"ana"}


def test_an_imported_guest_is_not_the_one_that_everybody_knows() -> None:
    assert populated([User("guest", "hash")])["guest"].password_hash == "hash"


def test_the_configuration_counts_over_the_file_and_the_file_over_the_folder(file: Path) -> None:
    file.write_text(json.dumps({"users": [ANA]}))
    before = User("ana", "from the folder", ("old",))
    assert populated([before])["ana"].tags == ("old",)
    assert populated([before], file)["ana"].tags == ("management",)
    assert populated([before], file, **CONFIGURED)["ana"].tags == ()


def test_loopback_users_follow_the_configuration(file: Path) -> None:
    file.write_text(json.dumps({"users": [ANA]}))
    users = populated([User("bob", loopback_only=True), User("eve")], file, loopback_users=["eve"])
    assert [users[name].loopback_only for name in ("ana", "bob", "eve")] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory"),
        ("{", "not valid JSON: Input data was truncated"),
        ('{"users": [{}]}', "users[0]: 'name' is missing"),
    ],
)
def test_a_file_that_cannot_be_used(file: Path, text: str | None, reason: str) -> None:
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        populated([], file)
    assert str(refused.value) == f"node.definitions {str(file)!r}: {reason}"


def test_skipped_definitions_of_the_file_are_logged(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(json.dumps({"queues": [], "gadgets": []}))
    with caplog.at_level(logging.WARNING, "recado"):
        populated([], file)
    assert "definitions skipped: gadgets: skipped" in caplog.text


# ── while it runs ─────────────────────────────────────────────────────────────────────────────────────


def limit(length: int) -> dict[str, object]:
    policy = {"vhost": "/", "name": "p", "pattern": "^q", "definition": {"max-length": length}}
    return {"policies": [policy]}


def test_definitions_from_another_thread() -> None:
    with recado.Broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for _ in range(3):
            channel.basic_publish("", "q", b"m")
        assert broker.import_definitions(limit(1)) == []
        assert channel.queue_declare("q", passive=True).method.message_count == 1
        assert broker.export_definitions("/")["policies"][0]["definition"] == {"max-length": 1}
        broker.delete_policy("p")
        assert broker.export_definitions("/")["policies"] == []
        channel.basic_publish("", "q", b"m")
        assert channel.queue_declare("q", passive=True).method.message_count == 2
        with pytest.raises(ValueError, match="there is no policy 'p'"):
            broker.delete_policy("p", operator=True)
        with pytest.raises(ValueError, match="there is no vhost 'x'"):
            broker.delete_policy("p", "x")
        with pytest.raises(ValueError, match="no policy provided"):
            broker.import_definitions({"policies": [{"vhost": "/", "name": "p", "pattern": ""}]})
        with pytest.raises(ValueError, match="there is no vhost 'x'"):
            broker.export_definitions("x")
        connection.close()


def test_definitions_in_the_loop() -> None:
    async def talk() -> object:
        async with recado.Broker() as broker:
            broker.import_definitions(limit(2))
            return broker.export_definitions()["policies"][0]["priority"]

    assert asyncio.run(talk()) == 0


def test_definitions_need_a_broker_that_runs() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        recado.Broker().export_definitions()


def test_an_embedded_broker_may_have_a_file_too(file: Path) -> None:
    file.write_text(json.dumps({"users": [], "vhosts": [{"name": "orders"}]}))
    with recado.Broker(config={"node": {"definitions": str(file)}}) as broker:
        names = [vhost["name"] for vhost in broker.export_definitions()["vhosts"]]
    assert names == ["/", "orders"]


def test_imported_definitions_survive_a_restart(tmp_path: Path) -> None:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    wanted = limit(2) | {
        "users": [{"name": "ana", "password": "secret", "limits": {"max-channels": 9}}],
        "vhosts": [{"name": "orders", "metadata": {"default_queue_type": "quorum"}}],
        "permissions": [{"user": "ana", "vhost": "/", **everything}],
        "queues": [{"vhost": "/", "name": "q", "durable": True, "auto_delete": False}],
    }
    with recado.Broker(data=tmp_path) as broker:
        broker.import_definitions(wanted)
        before = broker.export_definitions()
    with recado.Broker(data=tmp_path) as broker:
        after = broker.export_definitions()
        assert "guest" not in broker.url
        url = broker.url.replace("//", "//ana:secret@")
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "q", b"m")
        assert channel.queue_declare("q", passive=True).method.message_count == 2
        connection.close()
    for document in (before, after):  # guest existed before other users were imported
        document["users"] = [each for each in document["users"] if each["name"] != "guest"]
        document["permissions"] = [
            each for each in document["permissions"] if each["user"] == "ana"
        ]
    assert after == before
    assert before["users"][0]["limits"] == {"max-channels": 9}


def test_a_user_of_the_configuration_keeps_imported_limits(tmp_path: Path) -> None:
    limits = {"max-connections": 3}
    ana = {"name": "ana", "password": "secret", "limits": limits}
    config = {"access": {"users": {"ana": {"password": "other"}}}}
    with recado.Broker(data=tmp_path, config=config) as broker:
        broker.import_definitions({"users": [ana]})
    with recado.Broker(data=tmp_path, config=config) as broker:
        (user,) = broker.export_definitions()["users"]
    assert user["limits"] == limits
