"""URLs and contexts: which server a command talks to, and the errors if it cannot."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import recado
from recado.cli.management import api
from recado.cli.management.server_address import ServerUrl, parse_url, select_context
from tests.certificate_folder import CertificateFolder

from .conftest import Run


def test_the_parts_of_a_url() -> None:
    assert parse_url("https://ana:a%2Fb@[::1]/proxy/api") == ServerUrl(
        "https", "::1", 15671, "/proxy", "ana", "a/b"
    )
    assert str(parse_url("https://ana:secret@[::1]:99")) == "https://ana@[::1]:99"
    assert parse_url("localhost:99").port == 99


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("amqp://localhost", "begins with http:// or https://"),
        ("http://", "has no host"),
        ("http://h:x", "is not a number"),
    ],
)
def test_a_url_that_is_none(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_url(url)


def test_contexts(broker: recado.Broker, run: Run, tmp_path: Path) -> None:
    url = f"http://guest:guest@127.0.0.1:{broker.management_port}"
    assert run("context", "set", "dev", url).status == 0
    assert run("context", "set", "odd \"name'", "http://ana:secret@other").status == 0
    assert stat.S_IMODE((tmp_path / "recado" / "contexts.toml").stat().st_mode) == 0o600
    listed = run("context", "list")
    assert "secret" not in listed.out
    assert [row[:2] for row in listed.rows] == [["*", "dev"], ["", "odd \"name'"]]
    assert run("queues", "list").status == 0, "the first context is in use"
    assert run("context", "use", "odd \"name'").status == 0
    assert run("queues", "list", "--context", "dev").status == 0
    unknown = run("queues", "list", "--context", "prod")
    assert unknown.status == 2
    assert "known: dev, odd" in unknown.err
    assert run("context", "delete", "dev").status == 0
    assert run("context", "delete", "dev").status == 2


def test_the_order_of_sources(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_context(None, None).url.endswith("127.0.0.1:15672")
    run("context", "set", "dev", "http://dev")
    assert select_context(None, None).url == "http://dev"
    run("context", "set", "prod", "http://prod")
    monkeypatch.setenv("RECADO_CONTEXT", "prod")
    assert select_context(None, None).url == "http://prod"
    monkeypatch.setenv("RECADO_URL", "http://variable")
    assert select_context(None, None).url == "http://variable"
    assert select_context(None, "dev").url == "http://dev"
    assert select_context("http://flag", "dev").url == "http://flag"


def test_a_damaged_file_of_contexts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "recado").mkdir()
    (tmp_path / "recado" / "contexts.toml").write_text("current = 5")
    done = run("queues", "list")
    assert done.status == 2
    assert "contexts.toml" in done.err


def test_a_wrong_password(broker: recado.Broker, run: Run) -> None:
    done = run("queues", "list", "--url", f"http://guest:wrong@127.0.0.1:{broker.management_port}")
    assert done.status == 4
    assert "login refused: user 'guest'" in done.err
    assert "wrong" not in done.err


def test_no_server(run: Run) -> None:
    done = run("status", "--url", "http://127.0.0.1:1")
    assert done.status == 5
    assert "recado serve --management-port" in done.err


def test_a_port_that_speaks_amqp(broker: recado.Broker, run: Run) -> None:
    done = run("status", "--url", f"http://127.0.0.1:{broker.port}", "--timeout", "20")
    assert (done.status, "is an AMQP port" in done.err) == (5, True)


def test_tls_with_a_port_that_has_none(broker: recado.Broker, run: Run) -> None:
    done = run("status", "--url", f"https://127.0.0.1:{broker.management_port}")
    assert (done.status, "does not speak TLS" in done.err) == (5, True)


def test_a_certificate_that_is_not_trusted(run: Run, tmp_path: Path) -> None:
    with recado.Broker(config=CertificateFolder(tmp_path).config()) as broker:
        done = run("status", "--url", f"https://127.0.0.1:{broker.management_port}")
    assert done.status == 5
    assert "is not trusted" in done.err
    assert "--ca-file" in done.err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon", "1e9"])
def test_a_wrong_timeout(run: Run, seconds: str) -> None:
    done = run("status", "--timeout", seconds)
    assert (done.status, "--timeout: seconds, more than 0" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("path", "described"),
    [
        (("queues", "v/1", "a b", "contents"), "queue 'a b' in vhost 'v/1'"),
        (("queues", "v"), "vhost 'v'"),
        (("exchanges", "/", "amq.default", "publish"), "exchange '' in vhost '/'"),
        (("bindings", "/", "e", "a", "q", "b"), "binding of 'a' to 'b' in vhost '/'"),
        (("users", "ana"), "user 'ana'"),
        (("permissions", "/", "ana"), "permissions of user 'ana' in vhost '/'"),
        (("overview",), "/api/overview"),
        (("users",), "/api/users"),
    ],
)
def test_errors_name_the_object(path: tuple[str, ...], described: str) -> None:
    assert api.describe_path(api.path_of(*path)) == described


def test_an_object_that_does_not_exist(recado_on: Run) -> None:
    done = recado_on("queues", "show", "none")
    assert done.status == 3
    assert "not found" in done.err


def test_an_idle_connection_is_not_reused(
    broker: recado.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server closes idle connections, and the next request would fail."""
    manager = api.ManagementApi(parse_url(f"http://guest:guest@127.0.0.1:{broker.management_port}"))
    path = api.path_of("connections")
    sockets = []
    for reuse_max_s in (1000.0, 1000.0, -1.0):
        monkeypatch.setattr(api, "REUSE_MAX_S", reuse_max_s)
        manager.get(path)
        assert manager._connection is not None
        sockets.append(manager._connection.sock)
    manager.close()
    assert sockets[0] is sockets[1]
    assert sockets[1] is not sockets[2]
