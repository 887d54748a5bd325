"""Signing in to the console at an OpenID provider, as a browser does, and what may not succeed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

import recado
from recado.cli.config import list_settings
from recado.node.config import ConfigError, load_config
from workshop.time_limit import scale

from .openid_provider import CLIENT, OpenIdProvider

CALLBACK = "/api/session/oauth/callback"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + scale(60)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Reply(NamedTuple):
    status: int
    location: str
    cookies: list[str]
    body: str


class Visitor:
    """A browser without scripts: keeps cookies, and follows no redirect by itself."""

    def __init__(self, port: int, host: str | None = None) -> None:
        self.port = port
        self.host = host or f"127.0.0.1:{port}"
        self.jar: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        jar = "; ".join(f"{name}={value}" for name, value in self.jar.items())
        fields = {"host": self.host, **({"cookie": jar} if jar else {}), **headers}
        connection.request("GET", path, headers=fields)
        response = connection.getresponse()
        body = response.read().decode()
        cookies = response.headers.get_all("set-cookie", [])
        for each in cookies:
            name, _, value = each.partition(";")[0].partition("=")
            self.jar[name] = value
        connection.close()
        return Reply(response.status, response.headers.get("location", ""), cookies, body)

    def begin(self) -> dict[str, str]:
        """Return the parameters of the authorization request."""
        reply = self.get("/api/session/oauth")
        assert reply.status == 303, reply
        return {key: values[0] for key, values in parse_qs(urlsplit(reply.location).query).items()}

    def finish(self, address: str) -> Reply:
        parts = urlsplit(address)
        return self.get(f"{parts.path}?{parts.query}")

    def session(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.get("/api/session").body)
        return found


@contextmanager
def running(provider: OpenIdProvider, **oauth: object) -> Iterator[recado.Broker]:
    with provider.serve():
        config: dict[str, dict[str, object]] = {
            "management": {"port": 0},
            "oauth": provider.settings(**oauth),
        }
        with recado.Broker(config=config) as broker:
            yield broker


@pytest.fixture
def provider() -> OpenIdProvider:
    return OpenIdProvider()


@pytest.fixture
def visitor(provider: OpenIdProvider) -> Iterator[Visitor]:
    with running(provider) as broker:
        assert broker.management_port is not None
        yield Visitor(broker.management_port)


def sign_in(visitor: Visitor, provider: OpenIdProvider) -> Reply:
    return visitor.finish(provider.approve(visitor.begin()))


def test_the_whole_flow(
    visitor: Visitor, provider: OpenIdProvider, caplog: pytest.LogCaptureFixture
) -> None:
    assert visitor.session() == {"user": None, "provider": provider.url.removeprefix("http://")}
    query = visitor.begin()
    assert query["redirect_uri"] == f"http://{visitor.host}{CALLBACK}"
    assert query["client_id"] == CLIENT
    assert query["scope"] == "openid profile"
    reply = visitor.finish(provider.approve(query))
    assert (reply.status, reply.location) == (303, "../../../")
    (cookie,) = reply.cookies
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    found = visitor.session()
    assert (found["user"], found["tags"]) == ("ana", ["administrator"])
    assert visitor.get("/api/users").status == 200
    assert provider.problems == []
    # Neither the browser nor the log has a token.
    (form,) = provider.forms
    seen = f"{found} {reply} {visitor.jar} {caplog.text}"
    for secret in (form["code"], provider._refresh_token, "eyJ"):
        assert secret not in seen


def test_the_cookie_of_a_flow_is_sent_when_another_site_leads_back(visitor: Visitor) -> None:
    reply = visitor.get("/api/session/oauth")
    (cookie,) = reply.cookies
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Lax; Max-Age=600")
    assert "-sign-in=" in cookie
    reply = visitor.get("/api/session/oauth", **{"x-forwarded-proto": "https"})
    (cookie,) = reply.cookies
    assert cookie.startswith("__Host-")
    assert cookie.endswith("; Secure")
    assert "redirect_uri=https%3A%2F%2F" in reply.location


def test_idp1_another_browser_cannot_use_the_answer(
    visitor: Visitor, provider: OpenIdProvider
) -> None:
    """Neither one that has not begun, nor one that has begun a flow of its own (forged sign-in)."""
    address = provider.approve(visitor.begin())
    for other in (Visitor(visitor.port), Visitor(visitor.port)):
        reply = other.finish(address)
        assert (reply.status, reply.location) == (303, "../../../#/sign-in?problem=expired")
        assert other.session()["user"] is None
        other.begin()
    state = urlencode({"state": parse_qs(urlsplit(address).query)["state"][0]})
    for query in ("", "?code=x", "?code=x&state=", f"?{state}&code=", f"?{state}&code=guessed"):
        assert visitor.get(f"{CALLBACK}{query}").location.startswith("../../../#/sign-in?problem=")
    assert visitor.session()["user"] is None
    assert provider.forms[-1]["code"] == "guessed"
    assert visitor.finish(address).location == "../../../", "the right browser can, once"
    visitor.jar = {name: each for name, each in visitor.jar.items() if "sign-in" in name}
    assert visitor.finish(address).location.endswith("problem=provider")


def test_below_a_path(provider: OpenIdProvider) -> None:
    with provider.serve():
        config: dict[str, dict[str, object]] = {
            "management": {"port": 0, "path_prefix": "/tools/broker"},
            "oauth": provider.settings(),
        }
        with recado.Broker(config=config) as broker:
            assert broker.management_port is not None
            visitor = Visitor(broker.management_port, "console.test")
            reply = visitor.get("/tools/broker/api/session/oauth")
            assert "; Path=/tools/broker/; " in reply.cookies[0]
            parameters = parse_qs(urlsplit(reply.location).query)
            query = {key: values[0] for key, values in parameters.items()}
            assert query["redirect_uri"] == f"http://console.test/tools/broker{CALLBACK}"
            # Relative to the address of the callback, this is the path of the console.
            assert visitor.finish(provider.approve(query)).location == "../../../"
            found = json.loads(visitor.get("/tools/broker/api/session").body)
            assert found["user"] == "ana"


def test_a_sign_in_ends_the_session_before(visitor: Visitor, provider: OpenIdProvider) -> None:
    sign_in(visitor, provider)
    before = dict(visitor.jar)
    sign_in(visitor, provider)
    assert visitor.session()["user"] == "ana"
    stale = Visitor(visitor.port)
    stale.jar = before
    assert stale.session()["user"] is None


def test_refusals_are_explained(
    visitor: Visitor, provider: OpenIdProvider, caplog: pytest.LogCaptureFixture
) -> None:
    def problem(change: dict[str, object]) -> str:
        provider.__dict__.update(usual)
        query = visitor.begin()
        provider.__dict__.update(change)
        return visitor.finish(provider.approve(query)).location.partition("problem=")[2]

    usual = dict(provider.__dict__)
    changes: list[tuple[dict[str, object], str]] = [
        ({"scopes": ("read:*/*",)}, "tag"),
        ({"lifetime_s": -5.0}, "refused"),
        ({"failure": (500, b"")}, "provider"),
        ({"failure": (200, b"{}")}, "provider"),
        ({"failure": (200, b"<html>")}, "provider"),
        ({"failure": (302, b"")}, "provider"),
        ({"failure": (200, b"x" * 300_000)}, "provider"),
        ({"issuer": "https://other.test"}, "provider"),
    ]
    for change, expected in changes:
        assert problem(change) == expected, change
        assert visitor.session()["user"] is None
    provider.__dict__.update(usual)
    denied = visitor.finish(provider.approve(visitor.begin(), is_approved=False))
    assert denied.location == "../../../#/sign-in?problem=denied"
    assert "the user 'ana' has no tag for the console" in caplog.text
    assert "invalid_grant" not in caplog.text


def test_idp2_a_provider_that_describes_another_issuer_is_refused() -> None:
    provider = OpenIdProvider()
    provider.issuer = "https://other.test"
    with running(provider) as broker:
        assert broker.management_port is not None
        reply = Visitor(broker.management_port).get("/api/session/oauth")
    assert (reply.status, reply.location) == (303, "../../#/sign-in?problem=provider")


def test_a_confidential_client_with_more_parameters() -> None:
    provider = OpenIdProvider(secret="s3cret")
    scopes = ["openid", "rabbitmq.tag:administrator"]
    parameters = {"audience": "rabbitmq", "state": "fixed"}
    with running(provider, sign_in_scopes=scopes, sign_in_parameters=parameters) as broker:
        assert broker.management_port is not None
        visitor = Visitor(broker.management_port)
        query = visitor.begin()
        assert (query["scope"], query["audience"]) == (" ".join(scopes), "rabbitmq")
        assert query["state"] != "fixed"
        assert visitor.finish(provider.approve(query)).location == "../../../"
        assert "client_secret" not in provider.forms[0]
        assert visitor.session()["user"] == "ana"


# ── expiry ────────────────────────────────────────────────────────────────────────────────────────────


def test_cs3_a_session_ends_with_its_token(visitor: Visitor, provider: OpenIdProvider) -> None:
    provider.lifetime_s, provider.refreshes = 2.0, False
    sign_in(visitor, provider)
    assert visitor.get("/api/whoami").status == 200
    eventually(lambda: visitor.session()["user"] is None)
    assert visitor.get("/api/whoami").status == 401


def test_psi1_an_expired_token_is_renewed(visitor: Visitor, provider: OpenIdProvider) -> None:
    provider.lifetime_s = 2.0
    sign_in(visitor, provider)
    provider.scopes = ("tag:monitoring", "read:*/*")
    expired_at = time.time() + 2.1
    eventually(lambda: time.time() > expired_at)
    assert visitor.session()["tags"] == ["monitoring"]
    assert [each["grant_type"] for each in provider.forms] == [
        "authorization_code",
        "refresh_token",
    ]
    assert visitor.get("/api/users").status == 401, "the rights are those of the new token"


def test_a_token_is_renewed_before_it_expires(visitor: Visitor, provider: OpenIdProvider) -> None:
    provider.lifetime_s = 4.0
    sign_in(visitor, provider)

    def is_renewed() -> bool:
        assert visitor.session()["user"] == "ana"
        return len(provider.forms) > 1

    eventually(is_renewed)


@pytest.mark.parametrize("change", ["user", "tag", "refusal"])
def test_psi1_a_session_that_cannot_be_renewed_ends(
    visitor: Visitor, provider: OpenIdProvider, change: str
) -> None:
    provider.lifetime_s = 2.0
    sign_in(visitor, provider)
    if change == "user":
        provider.user = "other"
    elif change == "tag":
        provider.scopes = ("read:*/*",)
    else:
        provider.failure = (400, b'{"error": "invalid_grant"}')
    eventually(lambda: visitor.session()["user"] is None)
    provider.failure = None
    assert visitor.session()["user"] is None


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_client_there_is_no_sign_in() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        visitor = Visitor(broker.management_port)
        assert visitor.session() == {"user": None}
        for path in ("/api/session/oauth", CALLBACK):
            assert visitor.get(path).status == 404


@pytest.mark.parametrize(
    ("oauth", "problem"),
    [
        ({"issuer": None}, "oauth.issuer .*is required by oauth.client_id"),
        ({"issuer": "http://provider.test"}, "oauth.issuer .*must be a URL with https"),
        ({"client_id": None, "client_secret": "x"}, "oauth.client_secret .*has no effect"),
        ({"client_id": "x", "resource_server_id": None}, "oauth.client_id .*has no effect"),
    ],
)
def test_wrong_settings(oauth: dict[str, object], problem: str) -> None:
    usual = {
        "resource_server_id": "rabbitmq",
        "jwks_url": "https://provider.test/keys",
        "issuer": "https://provider.test",
        "client_id": "console",
    }
    chosen = {name: value for name, value in {**usual, **oauth}.items() if value is not None}
    if "resource_server_id" not in chosen:
        del chosen["jwks_url"]
    with pytest.raises(ConfigError, match=problem):
        recado.Broker(config={"oauth": chosen}).__enter__()


def test_the_secret_is_not_printed() -> None:
    settings = {"RESOURCE_SERVER_ID": "r", "JWKS_FILE": "k", "ISSUER": "https://p.test"}
    client = {"CLIENT_ID": "c", "CLIENT_SECRET": "s3cret"}
    environment = {f"RECADO_OAUTH_{name}": each for name, each in {**settings, **client}.items()}
    rows = list(list_settings(load_config(environment=environment)))
    assert ("oauth.client_secret", "(hidden)", "RECADO_OAUTH_CLIENT_SECRET") in rows
    assert "s3cret" not in str(rows)
