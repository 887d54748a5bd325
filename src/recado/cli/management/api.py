"""Requests to the HTTP API of a broker.

`http.client` of the standard library, because a command starts in less time than aiohttp needs to be imported.
"""

from __future__ import annotations

import base64
import http.client
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode

import msgspec

from .server_address import ServerUrl

if TYPE_CHECKING:
    import ssl

REQUEST_TIMEOUT_S: Final = 60.0
ANSWER_MAX_BYTES: Final = 1 << 30
"""A guard for memory: definitions of 1,000,000 queues have about 200 MB."""
DEFAULT_EXCHANGE: Final = "amq.default"
"""The name of the default exchange in a path."""
REUSE_MAX_S: Final = 5.0
"""A connection that was idle for longer is not reused: the server may be closing it."""
PLAIN_PORT_REASONS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""The names of OpenSSL's errors for an answer that is not TLS."""
HTML_ENTITIES: Final = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&"}
"""RabbitMQ escapes some reasons for web pages."""


class ManagementError(Exception):
    """The server answered a request with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ObjectNotFoundError(ManagementError):
    """The object does not exist, or the user may not see it."""


class AccessDeniedError(ManagementError):
    """The login is wrong, or the user lacks a tag or a permission."""


class UnreachableError(Exception):
    """The server cannot be reached, or does not answer as an HTTP API of a broker does."""


def path_of(*segments: str) -> str:
    """Return a path below `/api`; names may contain any character.

    Raises `ValueError` if one is empty, because the path would be that of all objects.
    """
    if not all(segments):
        raise ValueError("a name is empty")
    return "/".join(["/api", *(quote(segment, safe="") for segment in segments)])


OBJECTS: Final = {
    "queues": "queue",
    "exchanges": "exchange",
    "policies": "policy",
    "operator-policies": "operator policy",
    "permissions": "permissions of user",
    "feeds": "feed",
    "users": "user",
    "vhosts": "vhost",
    "connections": "connection",
    "channels": "channel",
    "pipelines": "pipeline",
    "actors": "actor system",
}
"""The words for an object in messages, by its collection in a path."""
WITHOUT_VHOST: Final = frozenset(
    {"users", "vhosts", "connections", "channels", "pipelines", "actors"}
)
OWN_COLLECTIONS: Final = {
    "feeds": "feeds",
    "pipelines": "pipelines",
    "actors": "actor systems",
    "events": "event stream",
}
"""Collections that RabbitMQ does not have."""


def describe_path(path: str) -> str:
    """Return what a path is about: `queue 'jobs' in vhost '/'`; the path itself if that is not known."""
    collection, *names = [unquote(segment) for segment in path.split("/")[2:]]
    kind = OBJECTS.get(collection)
    match names:
        case [name, *_] if collection in WITHOUT_VHOST:
            return f"{kind} '{name}'"
        case [vhost, "e", source, "q" | "e", destination, *_] if collection == "bindings":
            source = source.removeprefix(DEFAULT_EXCHANGE)
            return f"binding of '{source}' to '{destination}' in vhost '{vhost}'"
        case [vhost, name, *_] if kind is not None:
            name = "" if name == DEFAULT_EXCHANGE and collection == "exchanges" else name
            return f"{kind} '{name}' in vhost '{vhost}'"
        case [vhost] if collection not in WITHOUT_VHOST:
            return f"vhost '{vhost}'"
        case _:
            return path


class ManagementApi:
    """One keep-alive connection to the HTTP API. Requests raise `ManagementError` or `UnreachableError`."""

    def __init__(
        self,
        address: ServerUrl,
        *,
        ca_file: str = "",
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.address = address
        self._ca_file = ca_file
        self._request_timeout = request_timeout
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0
        self.is_recado = False
        """Whether the server of the last answer is recado, by its header `server`."""
        login = f"{address.user}:{address.password}".encode()
        self._headers = {
            "authorization": f"Basic {base64.b64encode(login).decode()}",
            "content-type": "application/json",
            "accept": "application/json, */*;q=0.1",  # RabbitMQ has no JSON for some deletions
        }

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Any | None:
        """Return an object; None if it does not exist."""
        try:
            return self.get(path)
        except ObjectNotFoundError:
            return None

    def put(self, path: str, body: object) -> bool:
        """Create or change an object; return whether it is new."""
        status, _ = self._exchange("PUT", path, body, None, {})
        return status == http.client.CREATED

    def delete(self, path: str, query: Mapping[str, str] | None = None) -> None:
        self.request("DELETE", path, query=query)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the decoded JSON of the answer; None if it has no body."""
        _, data = self._exchange(method, path, body, query, headers or {})
        if not data:
            return None
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreachableError(
                f"{self.address} does not answer as a management API: {error}"
            ) from error

    def stream(self, path: str, query: Mapping[str, str], idle_timeout: float) -> Iterator[bytes]:
        """Yield the lines of an answer without an end, as they arrive, on a connection of its own.

        Raises `UnreachableError` if no byte arrives for `idle_timeout` seconds, or for the request timeout if that
        is longer.
        """
        target = f"{self.address.prefix}{path}?{urlencode(query)}"
        connection = self._connect()
        timeout_s = connection.timeout = max(self._request_timeout, idle_timeout)
        try:
            connection.request("GET", target, headers=self._headers)
            response = connection.getresponse()
            self.is_recado = response.getheader("server") == "recado"
            if response.status >= http.client.BAD_REQUEST:
                data = response.read(ANSWER_MAX_BYTES)
                raise self._to_error(response.status, response.reason, data, "GET", path)
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(self._describe(error, timeout_s)) from error
        finally:
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
    ) -> tuple[int, bytes]:
        target = self.address.prefix + path + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else msgspec.json.encode(body)
        if time.monotonic() - self._used_at > REUSE_MAX_S:
            self.close()
        try:
            connection = self._connection = self._connection or self._connect()
            connection.request(method, target, content, {**self._headers, **headers})
            response = connection.getresponse()
            data = response.read(ANSWER_MAX_BYTES)
            self._used_at = time.monotonic()
            self.is_recado = response.getheader("server") == "recado"
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise UnreachableError(self._describe(error, self._request_timeout)) from error
        if response.status >= http.client.BAD_REQUEST:
            raise self._to_error(response.status, response.reason, data, method, path)
        return response.status, data

    def _connect(self) -> http.client.HTTPConnection:
        address = self.address
        if address.scheme == "https":
            return http.client.HTTPSConnection(
                address.host,
                address.port,
                timeout=self._request_timeout,
                context=self._create_tls_context(),
            )
        return http.client.HTTPConnection(address.host, address.port, timeout=self._request_timeout)

    def _create_tls_context(self) -> ssl.SSLContext:
        import ssl

        return ssl.create_default_context(cafile=self._ca_file or None)

    def _describe(self, error: Exception, timeout_s: float) -> str:
        if isinstance(error, ConnectionRefusedError):
            return (
                f"no HTTP API at {self.address}: connection refused."
                " Start a broker with `recado serve --management-port 15672`,"
                " or name another server with --url or --context"
            )
        if isinstance(error, TimeoutError):
            return f"{self.address} sent nothing for {timeout_s:g} s (--timeout)"
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
            if str(error).startswith("AMQP"):
                return f"{self.address} is an AMQP port; the HTTP API is usually on port 15672"
            return f"{self.address} does not speak HTTP; a port with TLS needs https://"
        reason = str(getattr(error, "reason", None))  # of `ssl.SSLError`, which is not imported
        if reason in PLAIN_PORT_REASONS:
            return f"{self.address} does not speak TLS; a port without TLS needs http://"
        if reason == "CERTIFICATE_VERIFY_FAILED":
            why = getattr(error, "verify_message", "invalid")
            return (
                f"the certificate of {self.address} is not trusted: {why};"
                " `recado context set NAME URL --ca-file FILE` names the file of its authority"
            )
        detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"{self.address} cannot be reached: {detail}"

    def _to_error(
        self, status: int, phrase: str, data: bytes, method: str, path: str
    ) -> ManagementError:
        reason = _read_reason(data) or phrase
        what, collection = describe_path(path), path.split("/")[2]
        match status:
            case http.client.NOT_FOUND if not self.is_recado and collection in OWN_COLLECTIONS:
                missing = OWN_COLLECTIONS[collection]
                return ManagementError(
                    status, f"{self.address} is not recado; RabbitMQ has no {missing}"
                )
            case http.client.NOT_FOUND:
                if reason.lower() == phrase.lower():
                    reason = f"it does not exist, or user '{self.address.user}' may not see it"
                return ObjectNotFoundError(status, f"not found: {what}: {_shorten(reason)}")
            case http.client.BAD_REQUEST if reason == "vhost_or_user_not_found":
                return ObjectNotFoundError(
                    status, f"not found: {what}: there is no such user, or no such vhost"
                )
            case http.client.BAD_REQUEST if _shorten(reason) != reason:
                return ObjectNotFoundError(status, f"not found: {_shorten(reason)}")
            # RabbitMQ writes `not_authorized` if the login failed, `not_authorised` if a permission is missing.
            case http.client.UNAUTHORIZED if "not_authorized" in data.decode("utf-8", "replace"):
                return AccessDeniedError(
                    status, f"login refused: user '{self.address.user}' on {self.address}"
                )
            case http.client.UNAUTHORIZED | http.client.FORBIDDEN:
                return AccessDeniedError(status, f"access refused: {what}: {reason}")
            case http.client.BAD_REQUEST:
                return ManagementError(status, f"{what}: {reason}")
            case _:
                return ManagementError(status, f"{method} {path}: {reason} (status {status})")


NOT_FOUND_PREFIXES: Final = ("404 NOT_FOUND - ", "NOT_FOUND - ")
"""How RabbitMQ begins the text of a channel error, which it also answers with the status 400."""


def _shorten(reason: str) -> str:
    for prefix in NOT_FOUND_PREFIXES:
        reason = reason.removeprefix(prefix)
    return reason


def _read_reason(data: bytes) -> str:
    """Return the reason in the body of an error; empty if it has none."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    reason = body.get("reason") if isinstance(body, dict) else None
    if reason is None:
        return ""
    if not isinstance(reason, str):
        return msgspec.json.encode(reason).decode()
    for entity, character in HTML_ENTITIES.items():
        reason = reason.replace(entity, character)
    return ": ".join(filter(None, map(str.strip, reason.splitlines())))
