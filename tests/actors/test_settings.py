"""The section `[actors]`: its defaults are those of the parts, and its values reach them."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import recado
from recado.actors import Actor, Message, WrongContextError
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport, ConnectionSharing, Storage
from recado.actors.remote.events import LinkClosed, LinkLost
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.tcp.transport import TcpSettings
from recado.actors.settings import ActorsSettings, open_system
from recado.node.config import ConfigError, load_config, read_settings

from .remote.running import in_a_loop

EVERYTHING = """
[actors]
transport = "amqp"
client_id = "desk-7"
cookie = "sesame"
require_cookie = true
untrusted = true
serializer = "json"
compression = "zstd"
compression_level = 9
max_frame_bytes = 65536
warm_up = 10
connect_timeout = 1.5
read_timeout = 8
retry_max = 0.25
reconnect_timeout = 30
broker = "amqps://broker.example:5999"
vhost = "/actor_host"
user = "actor_admin"
password = "secret"
storage = "exclusive_autodelete"
persistent = false
server_bridge = false
server_sharing = "one_connection_per_channel"
dispatcher = "fixed_pool"
threads = 3
mailbox_capacity = 1000
mailbox_folder = "mail"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "recado.toml"
    file.write_text(EVERYTHING)
    return file


def test_the_defaults_are_those_of_the_parts() -> None:
    settings = ActorsSettings()
    assert settings.remote_options() == RemoteOptions()
    assert settings.amqp_settings() == AmqpSettings()
    assert settings.tcp_settings() == TcpSettings()
    assert settings.create_transport() is None
    assert settings.create_dispatcher() is None


def test_what_it_says_reaches_the_parts(file: Path) -> None:
    settings = read_settings(file, {}).actors
    options = settings.remote_options()
    assert (options.cookie, options.require_cookie, options.untrusted) == ("sesame", True, True)
    assert (options.client_id, options.serializer) == ("desk-7", "json")
    assert (options.compression, options.compression_level) == ("zstd", 9)
    assert (options.max_frame_bytes, options.warm_up) == (65536, 10)
    assert settings.amqp_settings() == AmqpSettings(
        storage=Storage.EXCLUSIVE_AUTODELETE,
        persistent=False,
        server_bridge=False,
        server_sharing=ConnectionSharing.PER_CHANNEL,
        connect_timeout=1.5,
        read_timeout=8,
        retry_max=0.25,
        reconnect_timeout=30,
    )
    transport = settings.create_transport()
    assert isinstance(transport, AmqpTransport)
    address = transport.address
    assert str(address) == "amqps://actor_admin@broker.example:5999//actor_host"
    assert (address.password, address.heartbeat) == ("secret", 4)
    assert address.connection_timeout == 1.5
    assert settings.mailbox_folder == str(file.parent / "mail")


def test_tcp() -> None:
    settings = ActorsSettings(transport="tcp", listen="127.0.0.1:0", nodes={"a": "host:1"})
    assert isinstance(settings.create_transport(), TcpTransport)
    given = ActorsSettings(connect_timeout=1, read_timeout=2, retry_max=3, reconnect_timeout=4)
    assert given.tcp_settings() == TcpSettings(
        connect_timeout=1, read_timeout=2, retry_max=3, reconnect_timeout=4
    )


def test_every_field_of_a_part_that_a_file_may_say_is_one_of_the_section() -> None:
    """What is renamed in one place only would be dropped without a word."""
    said = set(ActorsSettings.__struct_fields__)
    of_programs = {
        "absence_timeout", "create_timeout", "failure_timeout", "handshake_timeout", "heartbeat_interval",
        "max_clients", "max_connections", "max_pending_asks", "max_remote_actors", "max_remote_watches",
        "metadata", "prefetch", "report_interval",
    }  # fmt: skip
    for part in (RemoteOptions, AmqpSettings, TcpSettings):
        assert set(part.__struct_fields__) <= said | of_programs


class Note(Message[None]):
    text: str


class Notes(Actor[Note]):
    def __init__(self, seen: asyncio.Queue[str]) -> None:
        self._seen = seen

    def receive(self, message: Note) -> None:
        self._seen.put_nowait(message.text)


@in_a_loop
async def test_its_folder_of_mailboxes_outlasts_the_system(tmp_path: Path) -> None:
    file = tmp_path / "recado.toml"
    file.write_text('[actors]\nmailbox_folder = "mail"')
    settings = read_settings(file, {}).actors
    seen: asyncio.Queue[str] = asyncio.Queue()
    async with open_system("exchange", settings) as system:
        box = system.durable_mailboxes.mailbox("notes")
        ref = await system.spawn(lambda: Notes(seen), name="notes", mailbox=box)
        await ref.tell_wait(Note("one"))
        assert await seen.get() == "one"
        await system.stop(ref)
        ref.tell(Note("two"))
    assert (tmp_path / "mail").is_dir()
    async with open_system("exchange", settings) as system:
        box = system.durable_mailboxes.mailbox("notes")
        await system.spawn(lambda: Notes(seen), name="notes", mailbox=box)
        assert await seen.get() == "two"


@in_a_loop
async def test_the_application_is_told_of_a_way_that_is_given_up() -> None:
    with socket.socket() as nobody:  # bound, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        settings = ActorsSettings(
            transport="tcp",
            nodes={"far": f"127.0.0.1:{port}"},
            reconnect_timeout=0.1,
            retry_max=0.01,
        )
        told: asyncio.Queue[object] = asyncio.Queue()
        async with open_system("near", settings) as system:
            system._listeners.append(told.put_nowait)
            system.actor("anybody", node="far").tell(Note("lost"))
            events = [await told.get()]
            while not isinstance(events[-1], LinkClosed):
                events.append(await told.get())
        bridges = [event for event in events if isinstance(event, LinkLost | LinkClosed)]
        assert [type(event) for event in bridges] == [LinkLost, LinkClosed]
        assert {event.link for event in bridges} == {"client of far"}


@pytest.mark.parametrize(
    ("cookie", "said", "demanded"),
    [("", None, False), ("x", None, True), ("x", False, False), ("x", True, True)],
)
def test_who_has_a_cookie_demands_it(cookie: str, said: bool | None, demanded: bool) -> None:
    options = ActorsSettings(cookie=cookie, require_cookie=said).remote_options()
    assert options.requires_cookie is demanded


@in_a_loop
async def test_a_system_without_a_folder_of_mailboxes_says_so() -> None:
    async with open_system("exchange", ActorsSettings()) as system:
        with pytest.raises(WrongContextError, match=r"Set actors\.mailbox_folder"):
            _ = system.durable_mailboxes


@pytest.mark.parametrize("kind", ["fixed_pool", "thread_per_actor", "elastic_pool"])
@in_a_loop
async def test_a_system_runs_as_it_says(kind: str) -> None:
    settings = ActorsSettings(dispatcher=kind, threads=2, mailbox_capacity=5)  # type: ignore[arg-type]
    async with open_system("exchange", settings) as system:
        assert type(system._default_dispatcher).__name__.lower() == kind.replace("_", "")


def test_the_environment_overrides_the_file(file: Path) -> None:
    environment = {"RECADO_ACTORS_COOKIE": "other", "RECADO_ACTORS_THREADS": "3"}
    settings = read_settings(file, environment).actors
    assert (settings.cookie, settings.threads) == ("other", 3)
    assert settings.client_id == "desk-7"  # of the file


def test_the_file_of_the_current_folder_and_the_environment_are_read_by_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("RECADO_ACTORS_COOKIE", "other")
    settings = recado.read_settings().actors
    assert (settings.client_id, settings.cookie) == ("desk-7", "other")
    monkeypatch.chdir("/")
    assert recado.read_settings().actors == ActorsSettings(cookie="other")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cookies = 'x'", "did you mean actors.cookie?"),
        ("storage = 'forever'", "expected durable or transient or exclusive_autodelete"),
        ("require_cookie = true", "actors.cookie is needed for actors.require_cookie"),
        ("mailbox_folder = ''", "actors.mailbox_folder .* is empty"),
        ("reconnect_timeout = 0", "actors.reconnect_timeout"),
        ("max_frame_bytes = 10", "actors.max_frame_bytes"),
        ("compression = 'zlib'\ncompression_level = 10", "actors.compression_level .* above 9"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "recado.toml"
    file.write_text(f"[actors]\n{text}")
    with pytest.raises(ConfigError, match=told):
        load_config(file=file)


def test_a_message_never_repeats_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "recado.toml"
    file.write_text("[actors]\ncookie = 12345")
    with pytest.raises(ConfigError) as caught:
        load_config(file=file)
    assert "12345" not in str(caught.value)


def test_settings_bring_no_actors_with_them() -> None:
    """A broker starts without them."""
    code = "import sys, recado.node.settings; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "recado.actors.settings" in ran.stdout.split()
    assert not {"asyncio", "recado.client", "recado.actors.actor"} & {*ran.stdout.split()}
