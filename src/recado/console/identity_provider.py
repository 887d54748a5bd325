"""Signing in to the console at an OpenID provider: the authorization code flow with PKCE (RFC 7636, RFC 9700).

    browser                      node                                    provider
    GET api/session/oauth   →    state and verifier in a cookie
                            ←    303 with state and challenge  →         the user signs in
    GET …/callback          ←    ─────────────────────────────────────   303 with code and state
                            →    state equals the cookie's?
                                 POST token endpoint: code, verifier →   checks the verifier
                                 access token, refresh token         ←
                            ←    303 to the console, with a session

The node keeps nothing until the code is redeemed: state and verifier are in a cookie that only this browser has. An
access token is checked like one that is sent as a password. Only what it allows is kept, in the session; the
refresh token stays in the session as well, and never reaches the browser.

IDP1  A code is redeemed only for the browser that has begun the flow, and only with its verifier.
IDP2  Tokens are sent to the endpoints of the configured issuer only; redirects are refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Final
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec

from recado.server.oauth.provider_url import find_url_problems

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
DISCOVERY_AGE_MAX_S: Final = 600.0
REQUEST_TIMEOUT_S: Final = 10.0
DOCUMENT_MAX_BYTES: Final = 256 * 1024
SECRET_BYTES: Final = 32
ERROR_MAX_COUNT: Final = 200  # characters of a provider's error in the log


class ProviderError(Exception):
    """The provider cannot be reached, refuses, or answers with nonsense; the text says which."""


class SignInSettings(msgspec.Struct, frozen=True):
    """What the node is to the provider."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    scopes: tuple[str, ...] = ("openid", "profile")
    parameters: Mapping[str, str] = {}
    """Further parameters of the authorization request, such as `audience`."""
    ca: str | None = None
    """The file with the authorities that sign the provider's certificate."""


class PendingSignIn(msgspec.Struct, frozen=True):
    """A flow that a browser has begun; the browser keeps it in a cookie."""

    state: str
    verifier: str

    @classmethod
    def create(cls) -> PendingSignIn:
        return cls(secrets.token_urlsafe(SECRET_BYTES), secrets.token_urlsafe(SECRET_BYTES))

    @classmethod
    def parse(cls, cookie: str) -> PendingSignIn | None:
        """Return the flow that a cookie has, None if there is none."""
        state, _, verifier = cookie.partition(".")
        return cls(state, verifier) if state and verifier else None

    def render(self) -> str:
        """Return the value of the cookie."""
        return f"{self.state}.{self.verifier}"

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return urlsafe_b64encode(digest).rstrip(b"=").decode()

    def accepts(self, state: str) -> bool:
        """Whether an answer belongs to this flow (IDP1)."""
        return hmac.compare_digest(self.state.encode(), state.encode())


class Tokens(msgspec.Struct, frozen=True):
    """The answer of the token endpoint."""

    access_token: str
    refresh_token: str | None = None


class _Metadata(msgspec.Struct, frozen=True):
    """The part of the provider's description that is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Refusal(msgspec.Struct, frozen=True):
    """An error of the token endpoint."""

    error: str = ""
    error_description: str = ""


class IdentityProvider:
    """Asks the provider on behalf of the console."""

    def __init__(self, settings: SignInSettings) -> None:
        self._settings = settings
        self._metadata: _Metadata | None = None
        self._metadata_expires_at = 0.0
        self._loading: asyncio.Task[_Metadata] | None = None
        self._client: aiohttp.ClientSession | None = None

    @property
    def host(self) -> str:
        """The host of the issuer, by which users know it."""
        return urlsplit(self._settings.issuer).netloc

    def is_issuer(self, name: str) -> bool:
        """Whether an answer that names its issuer (RFC 9207) comes from this one."""
        return name == self._settings.issuer

    async def address_of(self, pending: PendingSignIn, redirect_uri: str) -> str:
        """Return the address at which the user signs in. Raises `ProviderError`."""
        metadata = await self._load_metadata()
        query = {
            **self._settings.parameters,
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": pending.state,
            "code_challenge": pending.challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
        return f"{metadata.authorization_endpoint}{separator}{urlencode(query)}"

    async def redeem(self, code: str, pending: PendingSignIn, redirect_uri: str) -> Tokens:
        """Exchange a code for tokens. Raises `ProviderError`."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": pending.verifier,
        }
        return await self._request_tokens(form)

    async def refresh(self, refresh_token: str) -> Tokens:
        """Return new tokens. Raises `ProviderError`."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        tokens = await self._request_tokens(form)
        if tokens.refresh_token is None:
            return msgspec.structs.replace(tokens, refresh_token=refresh_token)
        return tokens

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            with suppress(asyncio.CancelledError, ProviderError):
                await self._loading
        if self._client is not None:
            await self._client.close()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def _load_metadata(self) -> _Metadata:
        """Return the provider's description, which is loaded once for all that wait for it."""
        if self._metadata is not None and monotonic() < self._metadata_expires_at:
            return self._metadata
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._discover())
            self._loading.add_done_callback(self._forget_task)
        return await asyncio.shield(self._loading)

    def _forget_task(self, task: asyncio.Task[_Metadata]) -> None:
        self._loading = None
        if not task.cancelled():
            task.exception()  # the requests that waited for it have raised it

    async def _discover(self) -> _Metadata:
        url = f"{self._settings.issuer.rstrip('/')}{DISCOVERY_PATH}"
        status, body = await self._send("GET", url)
        if status != 200:
            raise ProviderError(f"{url} answers {status}")
        try:
            metadata = msgspec.json.decode(body, type=_Metadata)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProviderError(f"{url} is no description of a provider: {error}") from error
        if metadata.issuer != self._settings.issuer:
            raise ProviderError(f"{url} describes another issuer, {metadata.issuer!r}")
        for name in ("authorization_endpoint", "token_endpoint"):
            for problem in find_url_problems(getattr(metadata, name)):
                raise ProviderError(f"{name} of {url} {problem}")
        self._metadata, self._metadata_expires_at = metadata, monotonic() + DISCOVERY_AGE_MAX_S
        return metadata

    async def _request_tokens(self, form: dict[str, str]) -> Tokens:
        metadata, settings = await self._load_metadata(), self._settings
        headers: dict[str, str] = {}
        if settings.client_secret is None:
            form["client_id"] = settings.client_id
        elif "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            # Both are encoded as in a form first (RFC 6749, 2.3.1).
            pair = (settings.client_id, settings.client_secret)
            encoded = ":".join(urlencode({"": each})[1:] for each in pair)
            headers["authorization"] = f"Basic {b64encode(encoded.encode()).decode()}"
        else:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        status, body = await self._send("POST", metadata.token_endpoint, form, headers)
        if status != 200:
            raise ProviderError(f"the token endpoint answers {status}{_describe_refusal(body)}")
        try:
            return msgspec.json.decode(body, type=Tokens)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProviderError("the token endpoint answers without a token") from error

    async def _send(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Send a request; return the status and the body. Raises `ProviderError`."""
        if self._client is None:
            context = ssl.create_default_context(cafile=self._settings.ca)
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context),
                timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
                headers={"accept": "application/json"},
                trust_env=True,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        try:
            async with self._client.request(
                method, url, data=form, headers=headers, allow_redirects=False
            ) as response:
                body = await response.content.read(DOCUMENT_MAX_BYTES + 1)
                while len(body) <= DOCUMENT_MAX_BYTES and not response.content.at_eof():
                    body += await response.content.read(DOCUMENT_MAX_BYTES + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ProviderError(f"{url}: {str(error) or type(error).__name__}") from error
        if len(body) > DOCUMENT_MAX_BYTES:
            raise ProviderError(f"{url} answers with more than {DOCUMENT_MAX_BYTES} bytes")
        return response.status, body


def _describe_refusal(body: bytes) -> str:
    """Return the error in an answer, without anything that could be a token."""
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f": {refusal.error} {refusal.error_description}"[:ERROR_MAX_COUNT].rstrip(" :")
