"""`recado feed …`: output as text and JSON, and errors."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import recado.feeds
from recado.cli import main, progress
from recado.cli.feed_output import format_message
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.message import decode_messages
from recado.feeds.options import FeedOptions
from recado.feeds.views import LostRange

FAST = FeedOptions(
    heartbeat_interval=0.05, failure_timeout=0.5, view_change_timeout=0.2, retry_interval=0.05
)


@pytest.fixture
def url(recado_broker: recado.Broker) -> str:
    return recado_broker.url


@pytest.fixture
def archived(url: str, tmp_path: Path) -> Iterator[Path]:
    """The folder of a running archive."""
    folder = tmp_path / "archive"
    with (
        recado.feeds.connect_blocking(url, options=FAST) as link,
        link.archive("quotes", folder, name="archive-1"),
    ):
        yield folder


def told(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["feed", *words])
    return status, capsys.readouterr().err


def test_publish_subscribe_and_replay(
    url: str,
    archived: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish = ["feed", "publish", "quotes", "--url", url]
    assert main([*publish, "one", "two", "--key", "PETR4", "--header", "venue=B3", "--json"]) == 0
    (done,) = told(capsys)
    assert (done["feed"], done["published"], done["confirmed"]) == ("quotes", 2, 2)
    (tmp_path / "lines").write_bytes(b"three\nfour\r\n")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        assert main(publish) == 0
    assert "2 messages published and confirmed" in capsys.readouterr().err
    vector = tmp_path / "vector"
    subscribe = ["feed", "subscribe", "quotes", "desk", "--url", url, "--vector", str(vector)]
    assert main([*subscribe, "--json", "--count", "3"]) == 0
    found = told(capsys)
    assert [each["body"] for each in found] == ["one", "two", "three"]
    assert found[0]["publisher"] == done["publisher"]
    assert found[0]["key"] == "PETR4"
    assert found[0]["headers"] == {"venue": "B3"}
    assert main([*subscribe, "--count", "1"]) == 0
    line = capsys.readouterr().out
    assert line.endswith(" - four\n")
    assert main(["feed", "replay", str(archived), "--json", "--selector", "key = 'PETR4'"]) == 0
    assert [each["body"] for each in told(capsys)] == ["one", "two"]
    assert main(["feed", "replay", str(archived), "--from", "1", "--to", "3"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["two", "three"]


def test_members(url: str, archived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = ["feed", "members", "quotes", "--url", url, "--seconds", "0.5"]
    assert main([*members, "--json"]) == 0
    ((archive,),) = told(capsys)
    assert (archive["role"], archive["name"]) == ("archive", "archive-1")
    assert archive["view"] > 0
    assert main(members) == 0
    assert capsys.readouterr().out.startswith("archive    archive-1 ")
    assert main([*members[:2], "nobody", *members[3:]]) == 1
    assert "no members found on feed nobody" in capsys.readouterr().err


def test_gc(url: str, archived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, why = failed(capsys, "gc", str(archived), "--max-messages", "1")
    assert status == 1
    assert "the archive is running; set the limits of `recado feed archive`" in why


def test_gc_of_an_archive_at_rest(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        recado.feeds.connect_blocking(url, options=FAST) as link,
        link.archive("quotes", tmp_path, name="archive-1"),
    ):
        pass
    assert main(["feed", "gc", str(tmp_path), "--max-age", "1d", "--json"]) == 0
    (report,) = told(capsys)
    assert (report["files"], report["first"]) == (0, 0)
    assert main(["feed", "gc", str(tmp_path), "--max-share", "50%"]) == 0
    assert "0 files with 0 messages (0 bytes) removed" in capsys.readouterr().out


def test_gc_without_grace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ArchiveStore(tmp_path, "quotes", seal_rows=1) as store:
        for first in (1, 2):
            store.append([MessageBatch(bytes(16), first, Block.build([b"x"]))])
            store.seal()
    gc = ["feed", "gc", str(tmp_path), "--max-messages", "1", "--grace", "0s", "--json"]
    assert main([*gc, "--dry-run"]) == 0
    (would,) = told(capsys)
    assert (would["dry_run"], would["files"], would["messages"]) == (True, 1, 1)
    assert main([*gc[:-1], "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would remove 1 files with 1 messages (")
    assert main(gc) == 0
    assert main(gc) == 0
    let_go, deleted = told(capsys)
    assert (let_go["files"], let_go["removed"]) == (1, 0)
    assert (deleted["files"], deleted["removed"]) == (0, 1)


def sealed(folder: Path, feed: str = "quotes") -> Path:
    """A stopped archive with 100 messages in a Parquet file and none in its journal; return the file."""
    with ArchiveStore(folder, feed) as store:
        store.append(
            [MessageBatch(bytes(16), 1, Block.build([b"%d" % number for number in range(100)]))]
        )
        store.seal()
        (file,) = store.files
    for path in folder.glob("journal/*"):
        path.unlink()
    return folder / file.path


def flip_a_bit(path: Path) -> None:
    """In the bodies, which are the last column before the footer."""
    content = bytearray(path.read_bytes())
    content[-int.from_bytes(content[-8:-4], "little") - 11] ^= 1
    path.write_bytes(content)


def test_verify_of_a_sound_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sealed(tmp_path)
    assert main(["feed", "verify", str(tmp_path)]) == 0
    size = path.stat().st_size
    assert capsys.readouterr().out == f"2 files checked ({size:,} bytes), 0 damaged\n"
    assert main(["feed", "verify", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"files": 2, "bytes": size, "damaged": [], "repaired": []}


def test_verify_of_an_archive_at_work(archived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feed", "verify", str(archived)]) == 0
    status, why = failed(capsys, "verify", str(archived), "--repair")
    assert status == 1
    assert "the archive is running; stop it first" in why


def test_verify_finds_a_flipped_bit_and_repairs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, other = tmp_path / "1", tmp_path / "2"
    path = sealed(folder)
    sealed(other)
    flip_a_bit(path)
    verify = ["feed", "verify", str(folder)]
    assert main(verify) == 1
    said = capsys.readouterr()
    assert f"{path} is damaged at " in said.out
    assert "1 damaged" in said.out
    assert "add --repair to restore them, and --from FOLDER" in said.err
    assert main([*verify, "--json"]) == 1
    (damage,) = json.loads(capsys.readouterr().out)["damaged"]
    assert damage["file"] == str(path)
    assert "checksum" in damage["what"]
    assert main([*verify, "--repair"]) == 1
    said = capsys.readouterr()
    assert "100 messages could not be restored" in said.out
    assert "or --yes to drop rows that cannot be restored" in said.err
    assert main([*verify, "--repair", "--from", str(other), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["damaged"] == []
    (repaired,) = report["repaired"]
    assert repaired["file"] == str(path)
    assert (repaired["rows"], repaired["from_archives"], repaired["lost"]) == (100, 100, [])
    assert main(["feed", "replay", str(folder), "--json"]) == 0
    assert [each["body"] for each in told(capsys)] == [str(number) for number in range(100)]


def test_verify_drops_what_is_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip_a_bit(sealed(tmp_path))
    verify = ["feed", "verify", str(tmp_path)]
    assert main([*verify, "--repair", "--yes", "--json"]) == 1
    (repaired,) = json.loads(capsys.readouterr().out)["repaired"]
    assert repaired["lost"] == [{"publisher": bytes(16).hex(), "first": 1, "last": 100}]
    assert main(verify) == 0


def test_verify_of_other_damage_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ArchiveStore(tmp_path, "quotes") as store:
        store.append([LostRange(bytes(16), 1, 3)])
        store.seal()
        store.append([MessageBatch(bytes(16), 4, Block.build([b"x" * 1000]))])
    (journal,) = tmp_path.glob("journal/*.journal")
    sound = journal.read_bytes()
    journal.write_bytes(sound.replace(b"x" * 1000, b"y" * 1000))
    status, why = failed(capsys, "verify", str(tmp_path))
    assert (status, "`recado journal check --data" in why) == (1, True)
    status, why = failed(capsys, "verify", str(tmp_path), "--repair")
    assert (status, ".journal is damaged at position" in why) == (1, True)
    journal.write_bytes(sound)
    (views,) = tmp_path.glob("views/*.parquet")
    views.unlink()
    status, why = failed(capsys, "verify", str(tmp_path))
    assert (status, "start the archive with an empty folder" in why) == (1, True)


def test_verify_takes_rows_only_from_other_archives_of_the_feed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(tmp_path / "1")
    sealed(tmp_path / "2", "trades")
    repair = ["verify", str(tmp_path / "1"), "--repair", "--from"]
    status, why = failed(capsys, *repair, str(tmp_path / "2"))
    assert (status, "is an archive of feed trades, not quotes" in why) == (1, True)
    status, why = failed(capsys, *repair, str(tmp_path / "1"))
    assert (status, "is a copy of the archive to repair" in why) == (1, True)


def test_a_long_verify_shows_a_progress_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(tmp_path)
    monkeypatch.setattr(progress, "SHOWN_BYTES_MIN", 10)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["feed", "verify", str(tmp_path)]) == 0
    assert f"[{'#' * progress.WIDTH_COUNT}] 100%" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["verify", "/nowhere"], 1, "no archive in /nowhere"),
        (["verify", "/nowhere", "--from", "x"], 2, "--from and --yes need --repair"),
        (["publish", "quotes", "x", "--url", "amqp://localhost:1"], 1, "localhost:1"),
        (["publish", "quotes", "x", "--header", "venue"], 2, "expected NAME=VALUE"),
        (["replay", "/nowhere"], 1, "no archive in /nowhere"),
        (["gc", "/nowhere"], 2, "--max-age, --max-messages or --max-share"),
        (["subscribe", "quotes", "desk", "--vector", "x", "--recovery", "archive"], 2, "--vector"),
    ],
)
def test_what_a_mistake_is_told(
    words: list[str], status: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, said = failed(capsys, *words)
    assert (got, why in said) == (status, True), said
    assert said.startswith("recado: ")


@pytest.mark.parametrize(
    ("url", "why", "example"),
    [
        ("http://localhost", "must begin with amqp://, amqps:// or udp://", "amqp://guest:guest@"),
        ("localhost", "not 'localhos'", "udp://239.255.42.1:4242"),
        ("amqp://localhost:port", "invalid port in the URL", "amqp://guest:guest@"),
        ("amqp://localhost/a/b", "write a slash in its name as %2F", "amqp://guest:guest@"),
        ("amqp://localhost?colour=red", "unknown option 'colour'", "amqp://guest:guest@"),
        ("amqp://[::1", "Invalid IPv6 URL", "amqp://guest:guest@"),
        ("udp://10.0.0.1:4242", "'10.0.0.1' is not a multicast address", "udp://239.255.42.1:4242"),
        ("udp://239.255.42.1", "the URL needs a port", "udp://239.255.42.1:4242"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ["feed", "publish", "quotes", "x"],
        ["feed", "subscribe", "quotes", "desk"],
        ["feed", "members", "quotes"],
        ["quotes", "watch", "--plain"],
    ],
)
def test_a_url_that_is_none(
    words: list[str], url: str, why: str, example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--url", url]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("recado: --url: ")
    assert why in said
    assert f"Example: {example}" in said or f" or {example}" in said


def test_a_selector_or_a_stack_that_is_wrong(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    subscribe = ("subscribe", "quotes", "desk", "--url", url)
    status, said = failed(capsys, *subscribe, "--selector", "price >")
    assert status == 2
    assert said.startswith("recado: --selector: ")
    status, said = failed(capsys, *subscribe, "--stack", "DISPATCH:SINC:AMQP")
    assert status == 2
    assert "SINC" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["gc", "x", "--max-age", "long"], "not a duration such as 90s, 15m, 36h, 30d or 2w"),
        (["gc", "x", "--max-share", "2"], "not a share such as 0.5 or 50%"),
        (["gc", "x", "--max-messages", "0"], "not a number above 0"),
        (["subscribe", "quotes", "desk", "--count", "0"], "not a number above 0"),
    ],
)
def test_words_that_are_no_values(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["feed", *words])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_vector_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vector").write_text("nonsense\n")
    vector = str(tmp_path / "vector")
    status, said = failed(capsys, "subscribe", "quotes", "desk", "--vector", vector)
    assert status == 2
    assert f"{vector}: invalid entry 'nonsense'" in said


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        ("feed", "  publish    Publish"),
        ("pipeline", "  run        Run a pipeline"),
        ("quotes", "  publish    Publish"),
    ],
)
def test_a_command_of_several_verbs_tells_them(
    command: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    assert verb in capsys.readouterr().out
    assert main([command]) == 2
    said = capsys.readouterr().err
    assert f"recado: {command}: missing verb\n" in said
    assert verb in said
    assert main([command, "bogus"]) == 2
    hint = f"`recado {command} --help` lists all"
    assert capsys.readouterr().err == f"recado: unknown command '{command} bogus'; {hint}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "folder", "--from", "-3"],
        ["members", "quotes", "--seconds", "nan"],
        ["members", "quotes", "--seconds", "-1"],
        ["members", "quotes", "--stack", "DISPATCH:AMQP"],
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["feed", *words])
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_range_that_ends_before_it_begins_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ArchiveStore(tmp_path, "quotes") as store:
        store.append([MessageBatch(bytes(16), 1, Block.build([b"x"] * 9))])
        store.sync()
    assert main(["feed", "replay", str(tmp_path), "--from", "3", "--to", "2"]) == 0
    assert capsys.readouterr().out == ""


def test_what_is_printed_has_no_power_over_the_terminal() -> None:
    block = Block.build([b"\x1b[31mred\ntwo\tparts \xc3\xa9"], keys=b"a\nb", timestamps=2**63 - 1)
    (message,) = decode_messages("quotes", MessageBatch(bytes(16), 1, block))
    text = format_message(message, as_json=False)
    assert text == f"{2**63 - 1} µs live      a\\nb \\x1b[31mred\\ntwo\tparts é\n"


@contextmanager
def archiving(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`recado feed archive` as a process of its own, which reports on standard error that it waits."""
    command = [sys.executable, "-m", "recado", "feed", "archive", "quotes", str(folder)]
    with subprocess.Popen(
        [*command, "--url", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            waits = process.stderr.readline()
            assert re.match(
                r"recado: broker connection of feeds lost: reconnecting \(error=.*:\d+", waits
            )
            yield process
        finally:
            process.kill()


@pytest.fixture
def silent_port() -> Iterator[socket.socket]:
    """A bound port on which nothing listens yet: it refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def stopped(process: subprocess.Popen[str]) -> bool:
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    return process.returncode == 0 and said.endswith("recado: stopped\n")


def test_an_archive_waits_for_its_broker(silent_port: socket.socket, tmp_path: Path) -> None:
    port = silent_port.getsockname()[1]
    with archiving(f"amqp://127.0.0.1:{port}", tmp_path) as process:
        silent_port.close()
        with recado.Broker(port=port):
            assert process.stdout is not None
            assert process.stdout.readline().startswith("archiving feed quotes in ")
            assert stopped(process)


def test_an_archive_that_waits_is_stopped_by_a_signal(
    silent_port: socket.socket, tmp_path: Path
) -> None:
    port = silent_port.getsockname()[1]
    with archiving(f"amqp://127.0.0.1:{port}", tmp_path) as process:
        assert stopped(process)
