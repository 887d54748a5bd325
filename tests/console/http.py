"""A small HTTP client for the management API: status, headers and decoded JSON."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import quote

TIMEOUT_S = 60.0


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class Api:
    """Requests of one user to one management port."""

    def __init__(
        self,
        port: int,
        user: str = "guest",
        password: str = "guest",
        tls: ssl.SSLContext | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """`headers` are instead of those of Basic authentication."""
        self.port = port
        self._tls = tls
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        basic = {"authorization": f"Basic {token}"} if user else {}
        self._headers = basic if headers is None else headers

    def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Reply:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}",
            method=method,
            data=data,
            headers={**self._headers, "content-type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as response:
                return _reply(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return _reply(error.code, dict(error.headers), error.read())

    def get(self, path: str) -> Any:
        """Return the JSON of a successful GET."""
        reply = self.request("GET", path)
        assert reply.status == 200, (path, reply)
        return reply.body

    def put(self, path: str, body: object) -> int:
        return self.request("PUT", path, body).status

    def post(self, path: str, body: object) -> Reply:
        return self.request("POST", path, body)

    def delete(self, path: str) -> int:
        return self.request("DELETE", path).status


def _reply(status: int, headers: dict[str, str], data: bytes) -> Reply:
    lower = {name.lower(): value for name, value in headers.items()}
    is_json = lower.get("content-type", "").startswith("application/json")
    return Reply(status, lower, json.loads(data) if is_json and data else data.decode())


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")
