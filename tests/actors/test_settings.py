"""The section `[actors]`: its defaults are those of the parts, and what it says reaches them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recado.actors.remote.amqp import Amqp, AmqpSettings, Sharing, Storage
from recado.actors.remote.options import Options
from recado.actors.remote.tcp import Tcp
from recado.actors.remote.tcp.transport import TcpSettings
from recado.actors.settings import ActorsSettings, open_system, read_settings
from recado.node.config import ConfigError, load
from tests.actors.remote.running import in_a_loop

EVERYTHING = """
[actors]
transport = "amqp"
client_id = "desk-7"
cookie = "sesame"
require_cookie = true
untrusted = true
serialiser = "json"
compression = "zstd"
compression_level = 9
frame_limit = 65536
connect_timeout = 1.5
read_timeout = 8
reconnect_delay = 0.25
give_up = 30
broker = "amqps://broker.example:5999"
vhost = "/actor_host"
user = "actor_admin"
password = "secret"
storage = "exclusive_autodelete"
persistent = false
server_bridge = false
server_sharing = "one_connection_per_channel"
dispatcher = "pool"
threads = 3
mailbox_capacity = 1000
mailboxes = "mail"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "recado.toml"
    file.write_text(EVERYTHING)
    return file


def test_the_defaults_are_those_of_the_parts() -> None:
    settings = ActorsSettings()
    assert settings.options() == Options()
    assert settings.amqp_settings() == AmqpSettings()
    common = ("connect_timeout", "give_up", "hold_limit")
    for name in common:
        assert getattr(settings.tcp_settings(), name) == getattr(TcpSettings(), name)
    assert settings.transport_of() is None
    assert settings.dispatcher_of() is None


def test_what_it_says_reaches_the_parts(file: Path) -> None:
    settings = read_settings(file)
    options = settings.options()
    assert (options.cookie, options.require_cookie, options.untrusted) == ("sesame", True, True)
    assert (options.client_id, options.serialiser) == ("desk-7", "json")
    assert (options.compression, options.compression_level) == ("zstd", 9)
    assert options.frame_limit == 65536
    assert settings.amqp_settings() == AmqpSettings(
        storage=Storage.EXCLUSIVE_AUTODELETE,
        persistent=False,
        serve=False,
        server_sharing=Sharing.PER_CHANNEL,
        connect_timeout=1.5,
        read_timeout=8,
        reconnect_delay=0.25,
        give_up=30,
    )
    transport = settings.transport_of()
    assert isinstance(transport, Amqp)
    address = transport.address
    assert str(address) == "amqps://actor_admin@broker.example:5999//actor_host"
    assert (address.password, address.heartbeat) == ("secret", 4)
    assert address.connection_timeout == 1.5
    assert settings.mailboxes == str(file.parent / "mail")


def test_tcp() -> None:
    settings = ActorsSettings(transport="tcp", listen="127.0.0.1:0", nodes={"a": "host:1"})
    assert isinstance(settings.transport_of(), Tcp)


@pytest.mark.parametrize("kind", ["pool", "thread_per_actor", "self_sizing"])
@in_a_loop
async def test_a_system_runs_as_it_says(kind: str) -> None:
    settings = ActorsSettings(dispatcher=kind, threads=2, mailbox_capacity=5)  # type: ignore[arg-type]
    async with open_system("exchange", settings) as system:
        assert type(system.dispatcher).__name__.lower() == kind.replace("_", "")


def test_the_node_has_the_same_section(file: Path) -> None:
    """One file for a broker and for the programs beside it."""
    assert load(file=file).settings.actors == read_settings(file)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cookies = 'x'", "did you mean actors.cookie?"),
        ("storage = 'forever'", "expected durable or transient or exclusive_autodelete"),
        ("require_cookie = true", "actors.cookie is needed for actors.require_cookie"),
        ("mailboxes = ''", "actors.mailboxes .* is empty"),
        ("give_up = 0", "actors.give_up"),
        ("frame_limit = 10", "actors.frame_limit"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "recado.toml"
    file.write_text(f"[actors]\n{text}")
    with pytest.raises(ConfigError, match=told):
        load(file=file)
    with pytest.raises(ValueError, match=r"actors"):
        read_settings(file)


def test_a_message_never_repeats_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "recado.toml"
    file.write_text("[actors]\ncookie = 12345")
    with pytest.raises(ConfigError) as caught:
        load(file=file)
    assert "12345" not in str(caught.value)


def test_settings_bring_no_actors_with_them() -> None:
    """A broker starts without them."""
    code = "import sys, recado.node.settings; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "recado.actors.settings" in ran.stdout.split()
    assert not {"asyncio", "recado.client", "recado.actors.actor"} & {*ran.stdout.split()}
