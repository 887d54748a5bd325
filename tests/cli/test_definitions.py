"""`recado definitions`: from a file to a data folder and back, and errors."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

import recado
from recado.cli import main
from recado.journal.disk import FolderDisk
from recado.journal.journal import Journal

DOCUMENT: dict[str, Any] = {
    "users": [{"name": "ana", "password_hash": "", "tags": "monitoring"}],
    "vhosts": [{"name": "orders"}],
    "permissions": [
        {"user": "ana", "vhost": "orders", "configure": ".*", "write": ".*", "read": ".*"}
    ],
    "policies": [
        {"vhost": "orders", "name": "p", "pattern": "^new", "definition": {"max-length": 5}}
    ],
    "queues": [{"name": "new", "vhost": "orders", "durable": True, "auto_delete": False}],
    "bindings": [
        {
            "source": "amq.topic",
            "vhost": "orders",
            "destination": "new",
            "destination_type": "queue",
            "routing_key": "order.*",
        }
    ],
    "global_parameters": [{"name": "cluster_name", "value": "a"}],
    "gadgets": [],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


def test_a_file_into_a_folder_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["definitions", "import", "in.json", "--data", "data"]) == 0
    told = capsys.readouterr()
    assert told.out == "imported in.json\n"
    assert told.err == "recado: in.json: gadgets: skipped, this key is not supported\n"
    assert main(["definitions", "export", "--data", "data"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {user["name"] for user in printed["users"]} == {"ana"}
    assert [queue["name"] for queue in printed["queues"]] == ["new"]
    assert [binding["routing_key"] for binding in printed["bindings"]] == ["order.*"]
    assert [policy["name"] for policy in printed["policies"]] == ["p"]
    assert printed["global_parameters"] == DOCUMENT["global_parameters"]

    assert main(["definitions", "export", "out.json", "--data", "data"]) == 0
    assert stat.S_IMODE(Path("out.json").stat().st_mode) == 0o600, "there are hashes in it"
    assert main(["definitions", "import", "out.json", "--data", "other"]) == 0
    capsys.readouterr()
    assert main(["definitions", "export", "--data", "other"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("out.json").read_text())


def test_one_vhost(capsys: pytest.CaptureFixture[str]) -> None:
    main(["definitions", "import", "in.json", "--data", "data"])
    assert main(["definitions", "export", "one.json", "--data", "data", "--vhost", "orders"]) == 0
    assert "users" not in json.loads(Path("one.json").read_text())
    assert main(["definitions", "import", "one.json", "--data", "data", "--vhost", "/"]) == 0
    capsys.readouterr()
    main(["definitions", "export", "--data", "data", "--vhost", "/"])
    assert json.loads(capsys.readouterr().out) == json.loads(Path("one.json").read_text())


def test_a_check_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FolderDisk(folder / "data")
    assert main(["definitions", "check", "in.json"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "created global_parameter (name='cluster_name')",
        "created user (name='ana')",
        "created vhost (name='orders')",
        "created permission (user='ana' vhost='orders')",
        "created policy (vhost='orders' name='p')",
        "created queue (vhost='orders' name='new')",
        (
            "created binding (vhost='orders' source='amq.topic' destination='new'"
            " destination_type='queue' routing_key='order.*' arguments={})"
        ),
        "7 created, 0 changed, 0 unchanged",
        "in.json is valid and can be imported",
    ]
    assert told.err == "recado: in.json: gadgets: skipped, this key is not supported\n"
    assert main(["definitions", "check", "in.json", "--data", "data"]) == 0
    assert capsys.readouterr().out == told.out
    main(["definitions", "export", "--data", "data"])
    assert json.loads(capsys.readouterr().out)["queues"] == []


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["definitions", "check", "in.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"kind": "user", "name": "ana"} in found["created"]
    assert (len(found["created"]), found["changed"], found["errors"]) == (7, [], [])
    assert found["skipped"] == ["gadgets: skipped, this key is not supported"]
    assert main(["definitions", "import", "in.json", "--data", "data", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "imported": "in.json",
        "notes": ["gadgets: skipped, this key is not supported"],
    }


def test_a_check_tells_what_would_change(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["definitions", "import", "in.json", "--data", "data"])
    policy = {**DOCUMENT["policies"][0], "pattern": "^old", "priority": 2}
    queue = {**DOCUMENT["queues"][0], "durable": False}
    changed = {**DOCUMENT, "policies": [policy], "queues": [queue], "gadgets": {}}
    (folder / "next.json").write_text(json.dumps(changed))
    capsys.readouterr()
    assert main(["definitions", "check", "next.json", "--data", "data"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "changed policy (vhost='orders' name='p'): pattern '^new' -> '^old', priority 0 -> 2",
        "0 created, 1 changed, 5 unchanged",
    ]
    assert "queues[0] ('new'): PRECONDITION_FAILED - inequivalent arg 'durable'" in told.err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (
            ["import", "in.json"],
            2,
            "missing data folder: set --data DIR or node.data, or --url of a running broker",
        ),
        (["import", "none.json", "--data", "d"], 1, "none.json: No such file or directory"),
        (["check", "wrong.json"], 1, "wrong.json: queues[0]: 'name' is missing"),
        (
            ["check", "text"],
            1,
            "text: not valid JSON: JSON is malformed: invalid character (byte 0)",
        ),
        (["export", "--data", ".", "--vhost", "x"], 1, ".: there is no vhost 'x'"),
        (["export", "--data", "none"], 1, "folder not found: none"),
        (["check", "in.json", "--data", "none"], 1, "folder not found: none"),
        (["export", "--data", ""], 2, "node.data (--data) is empty: name a folder"),
    ],
)
def test_mistakes(
    words: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.json").write_text(
        '{"queues": [{"vhost": "/", "durable": true, "auto_delete": true}]}'
    )
    Path("text").write_text("queues")
    assert main(["definitions", *words]) == status
    assert capsys.readouterr().err == f"recado: {text}\n"
    assert not Path("none").exists()


def test_a_folder_of_a_later_release(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["definitions", "import", "in.json", "--data", "data"])
    capsys.readouterr()
    journal = Journal(FolderDisk(folder / "data" / "journal"))
    for _ in journal.recover():
        pass
    journal.append(b"\xf0")
    journal.close()
    assert main(["definitions", "export", "--data", "data"]) == 1
    assert capsys.readouterr().err == (
        "recado: data: the journal has a record of unknown kind 240: it was written by a later "
        "release of recado; start that release\n"
    )


def test_a_folder_that_is_in_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = FolderDisk(folder / "data")
    disk.lock()
    try:
        assert main(["definitions", "import", "in.json", "--data", "data"]) == 1
    finally:
        disk.close()
    assert "data is in use by" in capsys.readouterr().err


def test_a_running_broker(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        server = ("--url", f"http://guest:guest@127.0.0.1:{broker.management_port}")
        assert main(["definitions", "check", "in.json", *server]) == 0
        checked = capsys.readouterr()
        assert checked.out.splitlines()[-2:] == [
            "7 created, 0 changed, 0 unchanged",
            "in.json is valid and can be imported",
        ]
        assert checked.err == "recado: in.json: gadgets: skipped, this key is not supported\n"
        assert main(["definitions", "import", "in.json", *server]) == 0
        assert main(["definitions", "export", "out.json", *server, "--vhost", "orders"]) == 0
        assert main(["definitions", "check", "none.json", *server]) == 1
        (folder / "text").write_text("queues")
        assert main(["definitions", "import", "text", *server]) == 1
        assert "text: not valid JSON" in capsys.readouterr().err
        assert main(["definitions", "export", *server, "--vhost", "none"]) == 3
        assert main(["definitions", "export", *server, "--data", "data"]) == 2
    exported = json.loads((folder / "out.json").read_text())
    assert [queue["name"] for queue in exported["queues"]] == ["new"]
    assert stat.S_IMODE((folder / "out.json").stat().st_mode) == 0o600
    assert main(["definitions", "export", *server]) == 5


def test_a_verb_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["definitions"]) == 2
    assert main(["definitions", "--help"]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("usage: recado definitions VERB")
    assert all(f"  {verb} " in listed for verb in ("export", "import", "check"))
