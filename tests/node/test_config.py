"""The configuration: precedence of layers, origins of values, and error messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recado.node.config import Config, ConfigError, from_mapping, load_config
from recado.node.settings import FULL_PERMISSION, Settings

Loader = Callable[..., Config]


@pytest.fixture
def loaded(tmp_path: Path) -> Loader:
    """Return a function that loads a recado.toml with a text."""

    def load_text(text: str = "", **layers: object) -> Config:
        (tmp_path / "recado.toml").write_text(text)
        return load_config(file=tmp_path / "recado.toml", **layers)  # type: ignore[arg-type]

    return load_text


def refused(loaded: Loader, text: str = "", **layers: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        loaded(text, **layers)
    return str(refusal.value)


def test_without_anything_the_defaults_hold() -> None:
    config = load_config()
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
    config = load_config(flags={"server.tls_port": 0, "server.certificate": "c", "server.key": "k"})
    assert config.origin("server.tls_port") == "--tls-port"


def test_a_file_can_be_named_and_must_then_exist(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    with pytest.raises(ConfigError, match=r"cannot read .*other\.toml: No such file"):
        load_config(file=other)
    other.write_text("[server]\nport = 9\n")
    assert load_config(file=other).settings.server.port == 9


def test_paths_in_a_file_are_relative_to_it(loaded: Loader, tmp_path: Path) -> None:
    text = '[server]\ntls_port = 0\ncertificate = "tls/c.pem"\nkey = "/k.pem"\n'
    server = loaded(text).settings.server
    assert (server.certificate, server.key) == (str(tmp_path / "tls/c.pem"), "/k.pem")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[server]\nprot = 1",
            "'server.prot' in {file} is not a setting; did you mean server.port",
        ),
        (
            "port = 1",
            "'port' in {file} is not a setting; did you mean server.port or management.port?",
        ),
        ("[sever]\nport = 1", "'sever' in {file} is not a setting; did you mean server?"),
        ("[server]\nqwertyuiop = 1", "'server.qwertyuiop' in {file} is not a setting"),
        (
            "[access.users.ana]\npasword = 'x'",
            "'access.users.ana.pasword' in {file} is not a setting; did you mean access.users.ana",
        ),
        (
            "[access.users.ana.permissions.'/']\nwrit = 'x'",
            "'access.users.ana.permissions./.writ' in {file} is not a setting",
        ),
        ("server = 1", "server in {file} must be a table: [server]"),
        ("[server", "{file} is not valid TOML"),
        ("[server]\nport = 'x'", "server.port ({file}): expected 'int', not 'x'"),
        ("[server]\nport = 65536", "server.port ({file}): expected 'int' <= 65535, not 65536"),
        (
            "[node]\nlog = 'loud'",
            "node.log ({file}): expected debug or info or warning or error, not 'loud'",
        ),
        ("[broker]\nmemory_watermark = 1.5", "broker.memory_watermark ({file}): expected 'float'"),
        ("[access]\nusers = 1", "access.users ({file}): expected 'object', got 'int'"),
        ("[access.users]\nana = 1", "access.users.ana ({file}): expected 'object', got 'int'"),
        (
            "[access.users.rui]\npassword = 'x'\n[access.users.ana]\ntags = 'x'",
            "access.users.ana.tags ({file}): expected 'array', got 'str'",
        ),
        (
            "[access.users.ana.permissions.'/']\nread = '.*'\nwrite = '^(Ana-'",
            "access.users.ana.permissions./.write ({file}): missing ): ^(Ana-",
        ),
        (
            "[access.users.ana.topic_permissions.'/'.t]\nread = '('",
            "access.users.ana.topic_permissions./.t.read ({file}): missing ): (",
        ),
        ("[access]\nvhosts = []", "access.vhosts ({file}): expected 'array' of length >= 1"),
    ],
)
def test_an_error_names_the_key_and_its_origin(
    loaded: Loader, tmp_path: Path, text: str, told: str
) -> None:
    assert refused(loaded, text).startswith(told.format(file=tmp_path / "recado.toml"))


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("RECADO_SERVER_PROT", "1", "which is not a setting; did you mean RECADO_SERVER_PORT"),
        ("RECADO_PORT", "5673", "which is not a setting; did you mean RECADO_SERVER_PORT"),
        ("RECADO_SERVER_PORT", "x", "server.port (RECADO_SERVER_PORT): expected 'int', not 'x'"),
        ("RECADO_NODE_LOOP", "x", "node.loop (RECADO_NODE_LOOP): expected auto or asyncio or uv"),
        ("RECADO_ACCESS_VHOSTS", "/,a", '(RECADO_ACCESS_VHOSTS): expected JSON such as ["/", "'),
        ("RECADO_ACCESS_USERS", "ana", '(RECADO_ACCESS_USERS): expected JSON such as {"ana": {'),
        ("RECADO_ACCESS_USERS", '{"ana": {"pasword": "x"}}', "'access.users.ana.pasword' in REC"),
        ("RECADO_ACCESS_USERS", '{"ana": {"password": 1}}', "access.users.ana.password (RECADO_"),
    ],
)
def test_a_mistake_in_the_environment(loaded: Loader, variable: str, value: str, told: str) -> None:
    assert told in refused(loaded, environment={variable: value})


def test_variables_of_kubernetes_are_ignored(loaded: Loader) -> None:
    environment = {
        "RECADO_SERVICE_HOST": "10.0.0.1",
        "RECADO_SERVICE_PORT_AMQP": "5672",
        "RECADO_PORT": "tcp://10.0.0.1:5672",
        "RECADO_PORT_5672_TCP_ADDR": "10.0.0.1",
        "RECADO_SERVER_PORT": "tcp://10.0.0.1:5672",  # of another, called recado-server
    }
    assert loaded(environment=environment).settings == Settings()


def test_a_message_never_repeats_a_password(loaded: Loader) -> None:
    for key in ("password", "password_hash"):
        assert "1234" not in refused(loaded, f"[access.users.ana]\n{key} = 1234")
        assert "1234" not in refused(loaded, f"[access.users.ana]\n{key} = ['1234']")
    assert "pssst" not in refused(loaded, "[access.users.ana]\npassword_hash = 'pssst'")


def test_the_environment_has_every_type(loaded: Loader) -> None:
    environment = {
        "RECADO_SERVER_TLS_PORT": "0",
        "RECADO_SERVER_CERTIFICATE": "certificate.pem",
        "RECADO_SERVER_KEY": "key.pem",
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
        ("[server]\ntls_port = 1", "server.certificate is required by server.tls_port"),
        ("[server]\nverify = true", "server.ca is required by server.verify"),
        (
            "[server]\nkey = 'k'",
            "server.key ({file}) has no effect without server.tls_port or management.tls",
        ),
        (
            "[server]\nca = 'a'\ncertificate = 'c'\nkey = 'k'\n[management]\ntls = true",
            "server.ca ({file}) has no effect without server.tls_port",
        ),
        (
            "[server]\ncertificate_login_from = 'common_name'",
            "server.ca is required by server.certificate_login_from: it signs the clients' certificates",
        ),
        ("[management]\ntls = true", "server.certificate is required by management.tls"),
        (
            "[server]\nport = 7\ntls_port = 7\ncertificate = 'c'\nkey = 'k'",
            "server.tls_port ({file}) is the same as server.port",
        ),
        ("[access.users.ana]", "access.users.ana ({file}) needs a password or a password_hash"),
        (
            "[access.users.ana]\npassword = 'x'\npassword_hash = 'y'",
            "access.users.ana ({file}) has both a password and a password_hash",
        ),
        (
            "[access.users.ana]\npassword_hash = 'abcd'",
            "access.users.ana.password_hash ({file}) is neither an argon2 hash",
        ),
        (
            "[access.users.ana]\npassword = 'x'\n[access.users.ana.permissions.two]\n",
            "access.users.ana.permissions ({file}) names the vhost 'two', which is not in access",
        ),
    ],
)
def test_keys_that_need_each_other(loaded: Loader, tmp_path: Path, text: str, told: str) -> None:
    assert refused(loaded, text).startswith(told.format(file=tmp_path / "recado.toml"))


OAUTH = "[oauth]\nresource_server_id = 'r'\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OAUTH, "oauth.jwks_url or oauth.jwks_file is required by oauth.resource_server_id"),
        (
            "[oauth]\njwks_file = 'f'",
            "oauth.jwks_file ({file}) has no effect without oauth.resource_server_id",
        ),
        (
            f"{OAUTH}jwks_url = 'https://a'\njwks_file = 'f'",
            "oauth.jwks_file ({file}) excludes oauth.jwks_url",
        ),
        (
            f"{OAUTH}jwks_file = 'f'\nca = 'c'",
            "oauth.ca ({file}) has no effect without oauth.jwks_url",
        ),
        (f"{OAUTH}jwks_url = 'jwks.json'", "oauth.jwks_url ({file}) is not a URL with https"),
        (f"{OAUTH}jwks_url = 'file:///f'", "oauth.jwks_url ({file}) is not a URL with https"),
        (f"{OAUTH}jwks_url = 'https://'", "oauth.jwks_url ({file}) is not a URL with https"),
        (f"{OAUTH}jwks_url = 'https://a:b/'", "oauth.jwks_url ({file}) is not a URL"),
        (f"{OAUTH}jwks_url = 'https://[::/'", "oauth.jwks_url ({file}) is not a URL"),
        (
            f"{OAUTH}jwks_url = 'http://a.test/'",
            "oauth.jwks_url ({file}) must be a URL with https",
        ),
        (
            f"{OAUTH}jwks_url = 'https://a:pssst@b.test/'",
            "oauth.jwks_url ({file}) must not contain a user name or password",
        ),
        (
            f"{OAUTH}jwks_url = 'https://a'\nalgorithms = ['HS256']",
            "oauth.algorithms ({file}): invalid enum value 'HS256'",
        ),
        (
            f"{OAUTH}jwks_url = 'https://a'\nalgorithms = ['none']",
            "oauth.algorithms ({file}): invalid enum value 'none'",
        ),
        (
            f"{OAUTH}jwks_url = 'https://a'\nalgorithms = []",
            "oauth.algorithms ({file}): expected 'array' of length >= 1",
        ),
    ],
)
def test_problems_of_oauth(loaded: Loader, tmp_path: Path, text: str, told: str) -> None:
    answer = refused(loaded, text)
    assert answer.startswith(told.format(file=tmp_path / "recado.toml"))
    assert "pssst" not in answer


@pytest.mark.parametrize(
    "url", ["https://a.test/keys", "http://localhost:5/", "http://127.0.0.1/", "http://[::1]:5/"]
)
def test_urls_of_keys(loaded: Loader, url: str) -> None:
    assert loaded(f"{OAUTH}jwks_url = '{url}'").settings.oauth.jwks_url == url


def test_guest_has_all_permissions_without_configured_users(loaded: Loader) -> None:
    access = loaded("[access]\nvhosts = ['/', 'two']").settings.access
    assert set(access.effective_users()) == {"guest"}
    assert access.effective_users()["guest"].permissions == {
        "/": FULL_PERMISSION,
        "two": FULL_PERMISSION,
    }
    access = loaded("[access.users.ana]\npassword = 'x'").settings.access
    assert set(access.effective_users()) == {"ana"}


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"server": {"prot": 7}}, "'server.prot' in Broker(…) is not a setting"),
        ({"server": {"port": "x"}}, "server.port (Broker(…)): expected 'int', not 'x'"),
        ({"server": 5}, "server in Broker(config=…) must be a mapping"),
        ("recado.toml", "Broker(config=…) takes a mapping with the sections of recado.toml"),
    ],
)
def test_an_embedded_broker_is_refused_the_same_mistakes(tree: object, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        from_mapping(tree)


def test_arguments_are_defaults_of_the_mapping() -> None:
    server = from_mapping({"server": {"port": 7}}, server={"host": "::1", "port": 8}).server
    assert (server.host, server.port) == ("::1", 7)
