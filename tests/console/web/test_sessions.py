"""Signing in to the console: cookies, tokens against forged requests, and the end of sessions."""

from __future__ import annotations

import re
import ssl
import urllib.request

import pytest

import recado
from recado.broker.access import User
from recado.console import sessions
from recado.console.sessions import SessionTable

from ...certificate_folder import CertificateFolder
from ..http import TIMEOUT_S, Api, Reply

FORM = {"username": "guest", "password": "guest"}


class Browser:
    """Keeps the cookie and the token of a session, as the console does."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.api = Api(port, headers={}, tls=tls)
        self.cookie = ""
        self.token = ""

    def sign_in(self, form: dict[str, str] = FORM) -> Reply:
        reply = self.request("POST", "/api/session", form)
        if reply.status == 200:
            self.token = reply.body["csrf_token"]
        return reply

    def request(
        self, method: str, path: str, body: object = None, token: str | None = None
    ) -> Reply:
        headers = {"x-csrf-token": self.token if token is None else token}
        if self.cookie:
            headers["cookie"] = self.cookie
        reply = self.api.request(method, path, body, headers)
        if "set-cookie" in reply.headers:
            self.cookie = reply.headers["set-cookie"].split(";")[0]
        return reply

    def status(self, path: str = "/api/whoami") -> int:
        return self.request("GET", path).status


@pytest.fixture
def browser(api: Api) -> Browser:
    return Browser(api.port)


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(browser: Browser) -> None:
    assert browser.request("GET", "/api/session").body == {"user": None}
    reply = browser.sign_in()
    assert reply.status == 200
    assert (reply.body["user"], reply.body["tags"]) == ("guest", ["administrator"])
    cookie = reply.headers["set-cookie"]
    assert re.fullmatch(
        r"recado-[0-9a-f]{8}=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", cookie
    ), cookie
    assert reply.headers["cache-control"] == "no-store"
    assert browser.request("GET", "/api/whoami").body["name"] == "guest"
    again = browser.request("GET", "/api/session").body
    assert again["csrf_token"] == reply.body["csrf_token"]


def test_refusals_do_not_make_the_browser_ask_for_a_password(browser: Browser) -> None:
    reply = browser.sign_in({"username": "guest", "password": "wrong"})
    assert (reply.status, reply.body["reason"]) == (401, "wrong user name or password")
    assert "www-authenticate" not in reply.headers
    reply = browser.request("GET", "/api/whoami")
    assert (reply.status, reply.body["error"]) == (401, "not_signed_in")
    assert "www-authenticate" not in reply.headers
    assert browser.sign_in({"username": "guest"}).body["reason"] == "[{key_missing,password}]"


def test_changes_need_the_token_of_the_session(browser: Browser) -> None:
    browser.sign_in()
    for token in ("", "x", browser.token + "x"):
        reply = browser.request("PUT", "/api/queues/%2F/q", {}, token=token)
        assert (reply.status, reply.body["error"]) == (403, "forbidden")
    headers = {"cookie": browser.cookie}  # as a form of another site would send it
    assert browser.api.request("PUT", "/api/queues/%2F/q", {}, headers).status == 403
    assert browser.api.request("DELETE", "/api/session", None, headers).status == 403
    assert browser.request("PUT", "/api/queues/%2F/q", {}).status == 201
    assert browser.api.request("GET", "/api/queues", None, headers).status == 200


def test_the_token_of_another_session_is_refused(api: Api, browser: Browser) -> None:
    browser.sign_in()
    other = Browser(api.port)
    other.sign_in()
    assert browser.request("PUT", "/api/queues/%2F/q", {}, token=other.token).status == 403


def test_a_login_makes_a_new_session_and_ends_the_old_one(api: Api, browser: Browser) -> None:
    browser.sign_in()
    name, _, _ = browser.cookie.partition("=")
    old, old_token = browser.cookie, browser.token
    browser.sign_in()
    assert browser.cookie != old
    assert browser.token != old_token
    stale = Browser(api.port)
    stale.cookie, stale.token = old, old_token
    assert stale.status() == 401
    planted = Browser(api.port)  # an id that an attacker has chosen is not accepted
    planted.cookie = f"{name}=chosen"
    assert planted.status() == 401
    planted.sign_in()
    assert planted.cookie != f"{name}=chosen"


def test_signing_out_ends_the_session(api: Api, browser: Browser) -> None:
    browser.sign_in()
    cookie = browser.cookie
    reply = browser.request("DELETE", "/api/session")
    assert reply.status == 204
    assert "Max-Age=0" in reply.headers["set-cookie"]
    browser.cookie = cookie
    assert browser.status() == 401


def test_a_stream_of_events_ends_with_its_session(api: Api, browser: Browser) -> None:
    browser.sign_in()
    request = urllib.request.Request(
        f"http://127.0.0.1:{api.port}/api/events?types=queue", headers={"cookie": browser.cookie}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as stream:
        assert stream.readline()
        assert browser.request("DELETE", "/api/session").status == 204
        lines = stream.read().splitlines()
    assert b"event: stream.closed" in lines
    assert any(b'"session_ended"' in line for line in lines)


def test_a_session_ends_with_the_password_and_the_user(api: Api) -> None:
    form = {"username": "ana", "password": "a long one"}
    assert api.put("/api/users/ana", {"password": "a long one", "tags": "monitoring"}) == 201
    browser = Browser(api.port)
    assert browser.sign_in(form).status == 200
    assert browser.status("/api/nodes") == 200
    assert browser.status("/api/users") == 401
    hashed = api.get("/api/users/ana")["password_hash"]
    assert api.put("/api/users/ana", {"password_hash": hashed, "tags": "administrator"}) == 204
    assert browser.status("/api/users") == 200, "other tags count at once"
    assert api.put("/api/users/ana", {"password": "another", "tags": "administrator"}) == 204
    assert browser.status() == 401
    assert browser.sign_in({"username": "ana", "password": "another"}).status == 200
    assert api.delete("/api/users/ana") == 204
    assert browser.status() == 401


def test_a_user_without_a_tag_cannot_sign_in(api: Api) -> None:
    assert api.put("/api/users/app", {"password": "a long one", "tags": ""}) == 201
    browser = Browser(api.port)
    reply = browser.sign_in({"username": "app", "password": "a long one"})
    assert (reply.status, reply.body["reason"]) == (401, "Not management user")
    assert browser.status("/api/overview") == 401


def test_wrong_passwords_are_throttled(browser: Browser) -> None:
    statuses = [
        browser.sign_in({"username": "guest", "password": f"wrong {number}"}).status
        for number in range(20)
    ]
    assert statuses[:10] == [401] * 10
    assert 429 in statuses


def test_basic_authentication_does_not_need_a_token(api: Api, browser: Browser) -> None:
    browser.sign_in()
    assert api.put("/api/queues/%2F/q", {}) == 201
    headers = {"cookie": browser.cookie}
    assert api.request("PUT", "/api/queues/%2F/r", {}, headers).status == 201


def test_requests_of_other_sites_are_refused(browser: Browser) -> None:
    headers = {"origin": "http://evil.example", "cookie": ""}
    reply = browser.api.request("POST", "/api/session", FORM, headers)
    assert (reply.status, reply.body["error"]) == (403, "forbidden")


def test_over_tls_the_cookie_is_secure(api: Api, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = CertificateFolder(tmp_path_factory.mktemp("tls"))
    folder.issue(days=20)
    with recado.Broker(config=folder.config()) as broker:
        assert broker.management_port is not None
        browser = Browser(broker.management_port, tls=folder.client())
        cookie = browser.sign_in().headers["set-cookie"]
        assert cookie.startswith("__Host-recado-")
        assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
        assert browser.status() == 200
    proxied = api.request("POST", "/api/session", FORM, {"x-forwarded-proto": "https"})
    assert proxied.headers["set-cookie"].endswith("; Secure")


def test_sessions_are_bounded_in_number_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX_COUNT", 4)
    monkeypatch.setattr(sessions, "USER_SESSIONS_MAX_COUNT", 2)
    table = SessionTable()
    ana = [table.open(User("ana", "h"), now)[0] for now in range(3)]
    assert [table.find(each, 3) is not None for each in ana] == [False, True, True]
    others = [table.open(User(f"u{number}", "h"), 10 + number)[0] for number in range(4)]
    assert len(table) == 4
    assert all(table.find(each, 20) is not None for each in others)
    end = 11 + sessions.SESSION_AGE_MAX_S
    assert [table.find(each, end) is not None for each in others] == [False, False, True, True]
    table.open(User("new", "h"), end)
    assert len(table) == 3, "expired sessions are removed"
