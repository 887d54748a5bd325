"""Resources and their verbs, against an embedded broker."""

from __future__ import annotations

import importlib
import io
import os
import time
from pathlib import Path

import pika
import pytest

import recado
from workshop.time_limit import scale

from .conftest import Run

RESOURCES = (
    *("queues", "streams", "exchanges", "bindings", "connections", "channels", "consumers"),
    *("users", "vhosts", "permissions", "policies"),
)


COMMANDS_WITHOUT_VERBS = ("status", "top", "publish", "get", "tap", "events", "bench")
TIME_LIMIT_S = 30.0
DESTRUCTIVE_VERBS = frozenset({"alter", "delete", "purge", "move", "replay", "close"})


def test_every_destructive_verb_has_a_dry_run() -> None:
    for name in RESOURCES:
        resource = importlib.import_module(f"recado.cli.management.{name}").COMMAND
        for verb, command in resource.verbs.items():
            assert command.is_destructive is (verb in DESTRUCTIVE_VERBS), f"{name} {verb}"
    for name in COMMANDS_WITHOUT_VERBS:
        command = importlib.import_module(f"recado.cli.management.{name}").COMMAND
        assert command.is_destructive is (name == "get"), name


def test_the_json_of_a_change_names_the_object(recado_on: Run) -> None:
    names = {"queue": "jobs", "vhost": "/"}
    assert recado_on("queues", "declare", "jobs", "--json").json == {**names, "created": True}
    altered = recado_on("queues", "alter", "jobs", "--auto-delete", "--json").json
    assert altered.items() >= names.items()
    recado_on("queues", "declare", "later")
    move = ("queues", "move", "jobs", "--to", "later", "--json")
    destination = {**names, "destination": "later", "destination_vhost": "/"}
    assert recado_on(*move).json == {**destination, "moved": 0, "left": 0, "reason": None}
    would = {"dry_run": True, **destination, "messages_ready": 0}
    assert recado_on(*move, "--dry-run").json == would
    bound = recado_on("bindings", "declare", "amq.topic", "jobs", "k", "--json").json
    assert bound == {
        "source": "amq.topic",
        "vhost": "/",
        "destination": "jobs",
        "destination_type": "queue",
        "routing_key": "k",
        "arguments": {},
    }
    declared = recado_on("exchanges", "declare", "e", "--json").json
    assert declared == {"exchange": "e", "vhost": "/", "created": True}
    rights = recado_on("permissions", "declare", "guest", "--write", "^a", "--json").json
    kept = {"configure": ".*", "write": "^a", "read": ".*"}
    assert rights == {"user": "guest", "vhost": "/", **kept, "created": False}


def test_get_asks_before_it_removes(recado_on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recado_on("queues", "declare", "jobs")
    recado_on("publish", "", "jobs", "hello")
    would = recado_on("get", "jobs", "-n", "5", "--dry-run")
    queue = "queue 'jobs' in vhost '/', which has 1 ready message"
    assert would.out == f"would remove up to 5 messages of {queue}\n"
    would = recado_on("get", "jobs", "--reject", "--dry-run")
    assert would.out == f"would dead-letter or drop up to 1 message of {queue}\n"
    would = recado_on("get", "jobs", "--requeue", "--dry-run")
    assert would.out == f"would read and put back up to 1 message of {queue}\n"
    (peeked,) = recado_on("queues", "peek", "jobs", "--json").json
    assert not peeked["redelivered"], "nothing was changed"

    terminal = io.StringIO("no\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    refused = recado_on("get", "jobs")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.endswith("? [y/N] nothing changed\n")
    assert recado_on("get", "jobs", "--yes").rows[0][-1] == "hello"


@pytest.mark.parametrize(
    "words",
    [
        ("get", "jobs", "-n", "0"),
        ("queues", "peek", "jobs", "-n", "-1"),
        ("queues", "move", "jobs", "--to", "later", "--count", "0"),
        ("tap", "jobs", "-n", "0"),
        ("events", "-n", "x"),
    ],
)
def test_counts_of_at_least_one(recado_on: Run, words: tuple[str, ...]) -> None:
    done = recado_on(*words)
    assert (done.status, "a whole number of at least 1" in done.err) == (2, True)


def test_a_dry_run_finds_what_the_server_would_refuse(recado_on: Run) -> None:
    for name in ("jobs", "later"):
        recado_on("queues", "declare", name)
    recado_on("exchanges", "declare", "e")
    recado_on("bindings", "declare", "e", "jobs")
    cases = (
        (("queues", "move", "jobs", "--to", "none"), 3),
        (("queues", "move", "jobs", "--to", "jobs"), 2),
        (("exchanges", "delete", "amq.topic"), 4),
        (("exchanges", "delete", ""), 4),
        (("bindings", "delete", "", "jobs", "jobs"), 4),
        (("exchanges", "delete", "e", "--if-unused"), 1),
    )
    for words, status in cases:
        assert recado_on(*words, "--dry-run").status == status, words
        assert recado_on(*words).status == status, words


def test_empty_names(recado_on: Run) -> None:
    """Their paths would be those of all objects."""
    assert recado_on("exchanges", "show", "", "--json").json["name"] == ""
    for words in (("queues", "show"), ("queues", "delete"), ("users", "delete"), ("get",)):
        done = recado_on(*words, "")
        assert (done.status, done.err) == (2, "recado: a name is empty\n")
    assert recado_on("queues", "list", "-V", "").status == 2


def test_hints(recado_on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recado_on("queues", "declare", "jobs")
    declared = recado_on("queues", "declare", "jobs", "--type", "quorum")
    assert declared.err.startswith("recado: queue 'jobs' in vhost '/': inequivalent arg")
    assert "`recado queues alter`" in declared.err
    missing = recado_on("publish", "none", "key", "body")
    assert (missing.status, "no exchange 'none' in vhost '/'" in missing.err) == (3, True)
    nobody = recado_on("permissions", "declare", "nobody")
    assert (nobody.status, "there is no such user" in nobody.err) == (3, True)
    terminal = io.StringIO("one\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    assert "each line is a message" in recado_on("publish", "", "jobs").err


def test_the_life_of_a_queue(recado_on: Run) -> None:
    done = recado_on("queues", "declare", "jobs", "--type", "quorum", "-a", "x-max-length=5")
    assert (done.status, done.out) == (0, "created: queue 'jobs' in vhost '/'\n")
    assert recado_on("publish", "", "jobs", "hello").out == "published 1 message\n"

    rows = recado_on("queues", "list").rows
    assert [row[:8] for row in rows] == [["/", "jobs", "quorum", "true", "", "1", "0", "0"]]
    shown = recado_on("queues", "show", "jobs", "--json").json
    assert shown["arguments"] == {"x-queue-type": "quorum", "x-max-length": 5}

    would = recado_on("queues", "purge", "jobs", "--dry-run")
    assert would.out == "would drop 1 ready message of queue 'jobs' in vhost '/'\n"
    purged = recado_on("queues", "purge", "jobs", "--json").json
    assert purged == {"queue": "jobs", "vhost": "/", "messages": 1}
    assert recado_on("queues", "delete", "jobs", "--dry-run", "--json").json == {
        "dry_run": True,
        "queue": "jobs",
        "vhost": "/",
        "messages": 0,
        "consumers": 0,
    }
    assert recado_on("queues", "delete", "jobs").status == 0
    assert recado_on("queues", "list").rows == []


def test_alter_a_queue(recado_on: Run) -> None:
    recado_on("queues", "declare", "jobs", "-a", "x-max-length=5", "-a", "x-message-ttl=60000")
    recado_on("publish", "", "jobs", "hello")
    change = ("queues", "alter", "jobs", "-a", "x-max-length=7", "--remove-argument")
    would = recado_on(*change, "x-message-ttl", "--dry-run", "--json")
    changes = {
        "x-max-length": {"before": 5, "after": 7},
        "x-message-ttl": {"before": 60000, "after": None},
    }
    assert would.json["changes"] == changes
    assert recado_on("queues", "show", "jobs", "--json").json["arguments"]["x-max-length"] == 5
    done = recado_on(*change, "x-message-ttl")
    line = "altered queue 'jobs' in vhost '/': x-max-length 5 -> 7, x-message-ttl 60000 -> none\n"
    assert (done.status, done.out) == (0, line)
    assert recado_on("queues", "alter", "jobs", "--durable").out == (
        "unchanged: queue 'jobs' in vhost '/'\n"
    )
    shown = recado_on("queues", "show", "jobs", "--json").json
    assert (shown["arguments"], shown["messages"]) == ({"x-max-length": 7}, 1)

    assert recado_on("queues", "alter", "jobs", "--type", "quorum").status == 0
    assert recado_on("queues", "list").rows[0][:6] == ["/", "jobs", "quorum", "true", "", "1"]
    refused = recado_on("queues", "alter", "jobs", "--no-durable")
    assert refused.status == 1
    assert "invalid property 'non-durable'" in refused.err
    missing = recado_on("queues", "alter", "jobs", "--remove-argument", "x-expires")
    assert "has no argument 'x-expires'" in missing.err
    assert recado_on("queues", "alter", "none", "--auto-delete").status == 3


def test_alter_asks_with_the_changes(recado_on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recado_on("queues", "declare", "jobs")
    change = ("queues", "alter", "jobs", "-a", "x-max-length=7")
    terminal = io.StringIO("no\nyes\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    refused = recado_on(*change)
    question = "alter queue 'jobs' in vhost '/': x-max-length none -> 7? [y/N] "
    assert (refused.status, refused.out, refused.err) == (1, "", f"{question}nothing changed\n")
    assert recado_on("queues", "show", "jobs", "--json").json["arguments"] == {}
    done = recado_on(*change)
    assert (done.status, done.err) == (0, question)
    assert recado_on(*change).out == "unchanged: queue 'jobs' in vhost '/'\n"
    assert recado_on("queues", "alter", "jobs", "--auto-delete", "--yes").status == 0


def test_delete_conditions(recado_on: Run) -> None:
    recado_on("queues", "declare", "jobs")
    recado_on("publish", "", "jobs", "hello")
    refused = recado_on("queues", "delete", "jobs", "--if-empty")
    assert refused.status == 1
    assert "not empty" in refused.err


@pytest.mark.parametrize("condition", ["--if-empty", "--if-unused"])
def test_a_dry_run_of_a_deletion_that_would_be_refused(
    broker: recado.Broker, recado_on: Run, condition: str
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("jobs", durable=True)
    if condition == "--if-empty":
        recado_on("publish", "", "jobs", "hello")
    else:
        channel.basic_consume("jobs", lambda *_: None)
    would = recado_on("queues", "delete", "jobs", condition, "--dry-run")
    refused = recado_on("queues", "delete", "jobs", condition)
    connection.close()
    assert (would.status, refused.status) == (1, 1)
    assert ("not empty" if condition == "--if-empty" else "in use") in would.err


def test_bindings_with_arguments(recado_on: Run) -> None:
    recado_on("exchanges", "declare", "orders", "--type", "headers")
    recado_on("queues", "declare", "big orders")
    ends = ("orders", "big orders", "a/b", "-a", "x-match=all", "-a", "size=5")
    assert recado_on("bindings", "declare", *ends).status == 0
    found = [each for each in recado_on("bindings", "list", "--json").json if each["source"]]
    assert [(each["routing_key"], each["arguments"]) for each in found] == [
        ("a/b", {"x-match": "all", "size": 5})
    ]
    missing = recado_on("bindings", "delete", "orders", "big orders", "a/b")
    assert missing.status == 3
    assert "with the given arguments" in missing.err
    assert recado_on("bindings", "delete", *ends).status == 0
    assert recado_on("exchanges", "delete", "orders", "--if-unused").status == 0


def test_users_and_permissions(recado_on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECADO_NEW_PASSWORD", "a long one")
    assert recado_on("vhosts", "declare", "shop", "--description", "of the shop").status == 0
    created = recado_on("users", "declare", "ana", "--tags", "monitoring")
    assert created.out == "created: user 'ana'\n"
    assert "a long one" not in created.out + created.err
    rights = ("--configure", "^ana", "--write", ".*", "--read", ".*")
    assert recado_on("permissions", "declare", "ana", "-V", "shop", *rights).status == 0
    rows = recado_on("permissions", "list").rows
    assert ["shop", "ana", "^ana", ".*", ".*"] in rows
    changed = recado_on("users", "declare", "ana")
    assert changed.out == "updated or unchanged: user 'ana'\n"
    assert recado_on("users", "show", "ana", "--json").json["tags"] == ["monitoring"]
    assert recado_on("users", "delete", "ana").status == 0
    assert recado_on("vhosts", "delete", "shop", "--json").json["queues"] == 0


def test_a_password_that_is_kept(recado_on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECADO_NEW_PASSWORD", "a long one")
    assert recado_on("users", "declare", "ana").status == 0
    monkeypatch.delenv("RECADO_NEW_PASSWORD")
    changed = ("--tags", "administrator", "--keep-password")
    assert recado_on("users", "declare", "ana", *changed).status == 0
    monkeypatch.setenv("RECADO_PASSWORD", "a long one")
    url = os.environ["RECADO_URL"].replace("guest:guest@", "ana@")
    assert recado_on("users", "show", "ana", "--url", url, "--json").json["tags"] == [
        "administrator"
    ]
    assert recado_on("users", "declare", "nobody", *changed).status == 3


@pytest.mark.parametrize(("again", "status"), [("two", 2), ("one", 0)])
def test_a_password_is_typed_twice(
    recado_on: Run, monkeypatch: pytest.MonkeyPatch, again: str, status: int
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    answers = iter(["one", again])
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))
    assert recado_on("users", "declare", "ana").status == status


def test_a_password_from_standard_input(recado_on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert recado_on("users", "declare", "ben").status == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    refused = recado_on("users", "declare", "ben")
    assert refused.status == 2
    assert "RECADO_NEW_PASSWORD" in refused.err


@pytest.mark.parametrize("flags", [(), ("--operator",)])
def test_policies(recado_on: Run, flags: tuple[str, ...]) -> None:
    declared = recado_on("policies", "declare", "short", "^jobs", "max-length=5", *flags)
    assert declared.status == 0
    rows = recado_on("policies", "list", *flags).rows
    assert [row[1] for row in rows] == ["short"]
    assert recado_on("policies", "delete", "short", *flags).status == 0
    assert recado_on("policies", "list", *flags).rows == []


def test_clients(broker: recado.Broker, recado_on: Run) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("jobs")
    channel.basic_consume("jobs", lambda *_: None, consumer_tag="worker")
    (row,) = recado_on("connections", "list").rows
    name = row[0]
    assert row[1:3] == ["guest", "/"]
    assert [each[0] for each in recado_on("channels", "list").rows] == [f"{name} (1)"]
    assert [each[1:3] for each in recado_on("consumers", "list").rows] == [["jobs", "worker"]]
    assert recado_on("connections", "close").status == 2
    would = recado_on("connections", "close", "--user", "guest", "--dry-run", "--json").json
    assert would == {"dry_run": True, "connections": [name]}
    assert recado_on("connections", "close", name, "--reason", "maintenance").status == 0
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
        connection.process_data_events(time_limit=30)


def test_streams(recado_on: Run) -> None:
    recado_on("queues", "declare", "jobs")
    assert recado_on("streams", "declare", "log", "--max-age", "7D").status == 0
    assert [row[1] for row in recado_on("streams", "list").rows] == ["log"]
    shown = recado_on("streams", "show", "log", "--json").json
    assert shown["arguments"] == {"x-queue-type": "stream", "x-max-age": "7D"}
    for verb in ("show", "delete"):
        wrong = recado_on("streams", verb, "jobs")
        assert (wrong.status, "queue 'jobs' in vhost '/' is no stream" in wrong.err) == (2, True)
    recado_on("publish", "", "log", "entry")
    assert [each["payload"] for each in recado_on("streams", "peek", "log", "--json").json] == [
        "entry"
    ]
    deleted = recado_on("streams", "delete", "log").out
    assert deleted == "deleted stream 'log' in vhost '/' with 1 message\n"
    assert [row[1] for row in recado_on("queues", "list").rows] == ["jobs"]


def test_publish_and_get(recado_on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recado_on("queues", "declare", "jobs")
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    assert recado_on("publish", "", "jobs", "-H", "n=1").out == "published 2 messages\n"
    (first,) = recado_on("get", "jobs", "--requeue", "--json").json
    assert (first["payload"], first["properties"]["headers"]) == ("one", {"n": 1})
    both = recado_on("get", "jobs", "-n", "5", "--json").json
    assert [each["payload"] for each in both] == ["one", "two"]
    assert both[0]["redelivered"]
    unroutable = recado_on("publish", "", "nowhere", "lost", "--json")
    assert (unroutable.status, unroutable.json["unroutable"]) == (1, 1)


def test_filters_of_a_list(recado_on: Run) -> None:
    for name in ("a1", "a2", "b1"):
        recado_on("queues", "declare", name)
    assert [row[1] for row in recado_on("queues", "list", "--name", "^a").rows] == ["a1", "a2"]
    newest = recado_on("queues", "list", "--sort", "name", "--reverse", "--limit", "1").rows
    assert [row[1] for row in newest] == ["b1"]
    assert recado_on("queues", "list", "--name", "(").status == 2
    negative = recado_on("queues", "list", "--limit", "-1")
    assert (negative.status, "of at least 0, not '-1'" in negative.err) == (2, True)
    unsorted = recado_on("queues", "list", "--sort", "sise")
    assert (unsorted.status, len(unsorted.rows)) == (0, 3)
    assert "no queues have a field 'sise'" in unsorted.err


def test_the_name_of_objects_without_a_name(broker: recado.Broker, recado_on: Run) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    for name in ("jobs", "later"):
        channel.queue_declare(name)
        channel.basic_consume(name, lambda *_: None, consumer_tag=f"worker of {name}")
    assert [row[2] for row in recado_on("bindings", "list", "--name", "^jobs$").rows] == ["jobs"]
    rows = recado_on("consumers", "list", "--name", "of later").rows
    assert [row[1] for row in rows] == ["later"]
    assert [row[1] for row in recado_on("permissions", "list", "--name", "^gue").rows] == ["guest"]
    connection.close()


def test_status(recado_on: Run) -> None:
    done = recado_on("status")
    assert done.status == 0
    assert f"recado {recado.__version__}, with the API of RabbitMQ" in done.out
    assert done.rows[-1] == ["alarms", ""]
    assert recado_on("status", "--json").json["alarms"] == []


def test_the_status_during_an_alarm(run: Run, tmp_path: Path) -> None:
    config: dict[str, dict[str, object]] = {
        "node": {"data": str(tmp_path / "data")},
        "broker": {"disk_free_min_bytes": 1 << 60},
        "management": {"port": 0},
    }
    with recado.Broker(config=config) as broker:
        url = f"http://guest:guest@127.0.0.1:{broker.management_port}"
        end_at = time.monotonic() + scale(TIME_LIMIT_S)
        while (done := run("status", "--url", url)).status == 0:
            assert time.monotonic() < end_at, done
    assert (done.status, done.rows[-1][0]) == (1, "alarms")
    assert done.rows[-1][1].startswith("disk on ")


def test_peek_and_move(recado_on: Run) -> None:
    for name in ("jobs", "later"):
        recado_on("queues", "declare", name)
    for number in range(4):
        recado_on("publish", "", "jobs", f"job {number}", "-H", f"n={number}")
    peeked = recado_on("queues", "peek", "jobs", "-n", "2", "--skip", "1", "--json").json
    assert [(each["payload"], each["redelivered"]) for each in peeked] == [
        ("job 1", False),
        ("job 2", False),
    ]
    move = ("queues", "move", "jobs", "--to", "later", "--selector", "headers.n >= 2")
    would = recado_on(*move, "--dry-run")
    assert would.out == "would move messages of queue 'jobs' in vhost '/' (4 ready) to 'later'\n"
    assert recado_on(*move).out == "moved 2 messages to 'later', 2 left\n"
    assert [row[4] for row in recado_on("get", "later", "-n", "5").rows][:2] != []
    wrong = recado_on("queues", "move", "jobs", "--to", "none")
    assert wrong.status in (1, 3)
    assert "none" in wrong.err


def test_a_move_that_ends_early(recado_on: Run) -> None:
    recado_on("queues", "declare", "jobs")
    recado_on("queues", "declare", "short", "-a", "x-max-length=1")
    for _ in range(3):
        recado_on("publish", "", "jobs", "job")
    done = recado_on("queues", "move", "jobs", "--to", "short")
    assert done.status == 1
    assert done.out.startswith("moved 1 message to 'short', 2 left; ended early: ")


def test_replay(recado_on: Run) -> None:
    dead = ("-a", "x-dead-letter-exchange=", "-a", "x-dead-letter-routing-key=dead")
    recado_on("queues", "declare", "jobs", *dead)
    recado_on("queues", "declare", "dead")
    recado_on("publish", "", "jobs", "a job")
    recado_on("publish", "", "dead", "no dead letter")
    for left in (1, 1):
        recado_on("get", "jobs", "--reject")
        would = recado_on("queues", "replay", "dead", "--dry-run").out
        assert would.startswith("would return dead letters of queue 'dead' in vhost '/' (2 ready)")
        done = recado_on("queues", "replay", "dead")
        assert (done.status, done.out) == (
            0,
            f"replayed 1 message, {left} left (kept: 1 no_x_death)\n",
        )
    recado_on("get", "jobs", "--reject")
    done = recado_on("queues", "replay", "dead", "--max-replays", "2", "--json").json
    assert (done["queue"], done["replayed"], done["kept"]["replayed_too_often"]) == ("dead", 0, 1)
