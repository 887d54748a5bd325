"""An OpenID provider with a page to sign in: authorization code flow with PKCE, refresh tokens that rotate."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlencode, urlsplit

from ..server.oauth.provider import Provider

CLIENT = "recado-console"
SCOPES = ("tag:administrator", "configure:*/*", "write:*/*", "read:*/*")


class OpenIdProvider(Provider):
    """Checks all that a careful provider checks, and notes the requests."""

    def __init__(self, secret: str | None = None) -> None:
        super().__init__()
        self.url = ""
        self.secret = secret
        self.user = "ana"
        self.scopes: tuple[str, ...] = SCOPES
        self.lifetime_s = 600.0
        self.refreshes = True
        self.issuer: str | None = None
        """In its description and its tokens, instead of its URL."""
        self.forms: list[dict[str, str]] = []
        self.problems: list[str] = []
        self.failure: tuple[int, bytes] | None = None
        """The answer of the token endpoint, instead of tokens."""
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_token = ""

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Answer requests; yield the URL, which is the issuer."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                self._answer(*provider.get(parts.path, query))

            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                form = parse_qs(self.rfile.read(size).decode())
                fields = {key: values[0] for key, values in form.items()}
                login = self.headers.get("authorization", "")
                self._answer(*provider.post(self.path, fields, login))

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("location" if status == 302 else "content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever, args=[0.01])
            thread.start()
            try:
                yield self.url
            finally:
                server.shutdown()
                thread.join()

    def settings(self, **others: object) -> dict[str, object]:
        """Return the settings of a node that trusts it."""
        return {
            "resource_server_id": "rabbitmq",
            "issuer": self.url,
            "jwks_url": f"{self.url}/jwks.json",
            "client_id": CLIENT,
            "leeway": 0.0,
            **({} if self.secret is None else {"client_secret": self.secret}),
            **others,
        }

    def get(self, path: str, query: dict[str, str]) -> tuple[int, str, bytes]:
        if path == "/jwks.json":
            return 200, "application/json", self.document()
        if path == "/.well-known/openid-configuration":
            described = {
                "issuer": self.issuer or self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks.json",
            }
            return 200, "application/json", json.dumps(described).encode()
        if path == "/favicon.ico":
            return 200, "image/png", b""
        assert path == "/authorize", path
        self._check(query["response_type"] == "code", "response_type")
        self._check(query["client_id"] == CLIENT, "client_id")
        self._check(query["code_challenge_method"] == "S256", "code_challenge_method")
        self._check(len(query["state"]) >= 32, "state")
        fields = "".join(
            f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
            for name, value in query.items()
        )
        page = (
            f"<title>Provider</title><form method=post action=/approve>{fields}"
            "<button name=answer value=yes>Approve</button>"
            "<button name=answer value=no>Deny</button></form>"
        )
        return 200, "text/html", page.encode()

    def post(self, path: str, form: dict[str, str], login: str) -> tuple[int, str, bytes]:
        if path == "/approve":
            return 302, self.approve(form, is_approved=form["answer"] == "yes"), b""
        assert path == "/token", path
        self.forms.append(form)
        if self.failure is not None:
            status, body = self.failure
            return status, "application/json", body
        if not self._knows_client(form, login) or not self._accepts(form):
            body = b'{"error": "invalid_grant", "error_description": "not that one"}'
            return 400, "application/json", body
        tokens: dict[str, object] = {"access_token": self.access_token(), "token_type": "Bearer"}
        if self.refreshes:
            self._refresh_token = tokens["refresh_token"] = secrets.token_urlsafe(16)
        return 200, "application/json", json.dumps(tokens).encode()

    def access_token(self) -> str:
        expiry = time.time() + self.lifetime_s
        issuer = self.issuer or self.url
        return self.token(*self.scopes, iss=issuer, sub=self.user, exp=expiry)

    def approve(self, query: dict[str, str], *, is_approved: bool = True) -> str:
        """Return the address to which the user is sent back."""
        answer = {"state": query["state"], "iss": self.issuer or self.url}
        if is_approved:
            code = answer["code"] = secrets.token_urlsafe(16)
            self._codes[code] = query
        else:
            answer["error"] = "access_denied"
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    def _knows_client(self, form: dict[str, str], login: str) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT and not login
        expected = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
        return login == f"Basic {expected}"

    def _accepts(self, form: dict[str, str]) -> bool:
        if form["grant_type"] == "refresh_token":
            return self.refreshes and form["refresh_token"] == self._refresh_token
        query = self._codes.pop(form["code"], None)  # once
        if query is None or form["redirect_uri"] != query["redirect_uri"]:
            return False
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return challenge == query["code_challenge"]

    def _check(self, is_right: bool, problem: str) -> None:
        if not is_right:
            self.problems.append(problem)
