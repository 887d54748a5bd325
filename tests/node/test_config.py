"""The configuration: which layer wins, where a value came from, and what a mistake is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recado.node.config import Config, ConfigError, from_mapping, load
from recado.node.settings import EVERYTHING, Settings

Loader = Callable[..., Config]


@pytest.fixture
def loaded(tmp_path: Path) -> Loader:
    """Loads a configuration whose recado.toml has the given text."""

    def load_text(text: str = "", **layers: object) -> Config:
        (tmp_path / "recado.toml").write_text(text)
        return load(file=tmp_path / "recado.toml", **layers)  # type: ignore[arg-type]

    return load_text


def refused(loaded: Loader, text: str = "", **layers: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        loaded(text, **layers)
    return str(refusal.value)


def test_without_anything_the_defaults_hold() -> None:
    config = load()
    assert config.settings == Settings()
    assert config.origin("server.port") == "default"


def test_flag_over_environment_over_file_over_default(loaded: Loader, tmp_path: Path) -> None:
    text = "[server]\nport = 1\nheartbeat = 1\nchannel_max = 1\n"
    environment = {"RECADO_SERVER_PORT": "2", "RECADO_SERVER_HEARTBEAT": "2", "PATH": "/bin"}
    config = loaded(text, environment=environment, flags={"server.port": 3, "server.host": None})
    server = config.settings.server
    assert (server.port, server.heartbeat, server.channel_max) == (3, 2, 1)
    assert server.host == "127.0.0.1"
    keys = ("server.port", "server.heartbeat", "server.channel_max", "server.host")
    assert [config.origin(key) for key in keys] == [
        "--port",
        "RECADO_SERVER_HEARTBEAT",
        str(tmp_path / "recado.toml"),
        "default",
    ]


def test_a_flag_with_two_words_is_named_as_it_is_typed() -> None:
    config = load(flags={"server.tls_port": 0, "server.certificate": "c", "server.key": "k"})
    assert config.origin("server.tls_port") == "--tls-port"


def test_a_file_can_be_named_and_must_then_exist(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    with pytest.raises(ConfigError, match=r"cannot read .*other\.toml: No such file"):
        load(file=other)
    other.write_text("[server]\nport = 9\n")
    assert load(file=other).settings.server.port == 9


def test_paths_in_a_file_are_relative_to_it(loaded: Loader, tmp_path: Path) -> None:
    server = loaded('[server]\ncertificate = "tls/c.pem"\nkey = "/k.pem"\n').settings.server
    assert (server.certificate, server.key) == (str(tmp_path / "tls/c.pem"), "/k.pem")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server]\nprot = 1", "'server.prot' in {file} is no setting; did you mean server.port"),
        ("port = 1", "'port' in {file} is no setting; did you mean server.port?"),
        ("[sever]\nport = 1", "'sever' in {file} is no setting; did you mean server?"),
        ("[server]\nqwertyuiop = 1", "'server.qwertyuiop' in {file} is no setting"),
        (
            "[access.users.ana]\npasword = 'x'",
            "'access.users.ana.pasword' in {file} is no setting; did you mean access.users.ana",
        ),
        (
            "[access.users.ana.permissions.'/']\nwrit = 'x'",
            "'access.users.ana.permissions./.writ' in {file} is no setting",
        ),
        ("server = 1", "server in {file} must be a table: [server]"),
        ("[server", "{file} is not valid TOML"),
        ("[server]\nport = 'x'", "server.port ({file}): expected 'int', got 'str'"),
        ("[server]\nport = 65536", "server.port ({file}): expected 'int' <= 65535"),
        ("[broker]\nmemory_watermark = 1.5", "broker.memory_watermark ({file}): expected 'float'"),
        ("[access]\nusers = 1", "access.users ({file}): expected 'object', got 'int'"),
        ("[access.users]\nana = 1", "access.users[...] ({file}): expected 'object', got 'int'"),
        ("[access]\nvhosts = []", "access.vhosts ({file}): expected 'array' of length >= 1"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    loaded: Loader, tmp_path: Path, text: str, told: str
) -> None:
    assert refused(loaded, text).startswith(told.format(file=tmp_path / "recado.toml"))


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("RECADO_SERVER_PROT", "1", "which is no setting; did you mean RECADO_SERVER_PORT"),
        ("RECADO_SERVER_PORT", "x", r"server.port (RECADO_SERVER_PORT): expected 'int'"),
        ("RECADO_ACCESS_VHOSTS", "x", r"access.vhosts (RECADO_ACCESS_VHOSTS): json is malformed"),
    ],
)
def test_a_mistake_in_the_environment(loaded: Loader, variable: str, value: str, told: str) -> None:
    assert told in refused(loaded, environment={variable: value})


def test_the_environment_has_every_type(loaded: Loader) -> None:
    environment = {
        "RECADO_SERVER_VERIFY": "true",
        "RECADO_SERVER_CA": "ca.pem",
        "RECADO_BROKER_MEMORY_WATERMARK": "0.5",
        "RECADO_ACCESS_VHOSTS": '["/", "two"]',
        "RECADO_ACCESS_USERS": '{"ana": {"password": "x", "permissions": {"two": {"read": ".*"}}}}',
    }
    settings = loaded(environment=environment).settings
    assert settings.server.verify
    assert settings.broker.memory_watermark == 0.5
    assert settings.access.vhosts == ("/", "two")
    assert settings.access.users["ana"].permissions["two"].read == ".*"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server]\ntls_port = 1", "server.certificate is needed for server.tls_port"),
        ("[server]\nverify = true", "server.ca is needed for server.verify"),
        ("[access.users.ana]", "access.users.ana needs either password or password_hash"),
        (
            "[access.users.ana]\npassword = 'x'\npassword_hash = 'y'",
            "access.users.ana needs either password or password_hash",
        ),
        (
            "[access.users.ana]\npassword = 'x'\n[access.users.ana.permissions.two]\n",
            "access.users.ana.permissions names the vhost 'two', which is not in access.vhosts",
        ),
    ],
)
def test_keys_that_need_each_other(loaded: Loader, text: str, told: str) -> None:
    assert refused(loaded, text).startswith(told)


def test_guest_may_do_everything_while_nobody_else_is_named(loaded: Loader) -> None:
    access = loaded("[access]\nvhosts = ['/', 'two']").settings.access
    assert set(access.known_users()) == {"guest"}
    assert access.known_users()["guest"].permissions == {"/": EVERYTHING, "two": EVERYTHING}
    access = loaded("[access.users.ana]\npassword = 'x'").settings.access
    assert set(access.known_users()) == {"ana"}


def test_an_embedded_broker_is_refused_the_same_mistakes() -> None:
    assert from_mapping({"server": {"port": 7}}).server.port == 7
    with pytest.raises(ConfigError, match=r"'server.prot' in Broker\(config=…\) is no setting"):
        from_mapping({"server": {"prot": 7}})
    with pytest.raises(ConfigError, match=r"server.port \(Broker\(config=…\)\): expected 'int'"):
        from_mapping({"server": {"port": "x"}})
