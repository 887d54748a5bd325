"""The public keys of the identity provider.

The keys are loaded at the start, every `REFRESH_INTERVAL_S`, so that a key that the provider withdraws is
refused soon, and when a token names an unknown key, because the provider may have rotated its keys. Tokens with
invented keys cannot cause more than one load per `LOAD_INTERVAL_S`. If a load fails, the known keys stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any, Final

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from .source import KeySourceError

log = logging.getLogger("recado.server")

REFRESH_INTERVAL_S: Final = 300.0
LOAD_INTERVAL_S: Final = 10.0  # between two loads that tokens cause
KEYS_MAX_COUNT: Final = 100
RSA_MIN_BITS: Final = 2_048

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
EC_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class VerificationKey(msgspec.Struct, frozen=True):
    """A public key, and the algorithms that it may be used with."""

    public_key: Any
    algorithms: tuple[str, ...]


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse_keys(document: bytes, algorithms: Collection[str]) -> dict[str | None, VerificationKey]:
    """Return the keys for signatures in a JSON Web Key Set, by id; None is the key of tokens without an id.

    Keys of other kinds, for other uses and for other algorithms are skipped. A single key is also that of
    tokens without an id. Raises `KeySourceError` if there is no usable key.
    """
    try:
        listed = msgspec.json.decode(document, type=_Document).keys
    except (msgspec.DecodeError, RecursionError) as error:
        raise KeySourceError("not a JSON Web Key Set") from error
    if len(listed) > KEYS_MAX_COUNT:
        raise KeySourceError(f"more than {KEYS_MAX_COUNT} keys")
    keys: dict[str | None, VerificationKey] = {}
    for member in listed:
        kid, key = member.get("kid"), _read_key(member, algorithms)
        if key is not None and isinstance(kid, str | None):
            keys.setdefault(kid, key)
    if not keys:
        raise KeySourceError("no usable key: RSA with 2,048 bits or more, EC or Ed25519")
    if len(keys) == 1:
        keys[None] = next(iter(keys.values()))
    return keys


def _read_key(member: Mapping[str, Any], allowed: Collection[str]) -> VerificationKey | None:
    if member.get("use", "sig") != "sig":
        return None
    try:
        public_key, possible = _decode_key(member)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError):
        return None
    wanted = member.get("alg")
    algorithms = tuple(
        each for each in possible if each in allowed and (wanted is None or each == wanted)
    )
    return VerificationKey(public_key, algorithms) if algorithms else None


def _decode_key(member: Mapping[str, Any]) -> tuple[Any, Collection[str]]:
    """Return the public key and the algorithms for its kind: never one for a shared secret."""

    def pick(*names: str) -> dict[str, Any]:
        """Return the public members only."""
        return {name: member[name] for name in ("kty", *names)}

    match member.get("kty"):
        case "RSA":
            key: Any = RSAAlgorithm.from_jwk(pick("n", "e"))
            if key.key_size < RSA_MIN_BITS:
                raise ValueError("the key is too short")
            return key, RSA_ALGORITHMS
        case "EC":
            return ECAlgorithm.from_jwk(pick("crv", "x", "y")), (EC_ALGORITHMS[member["crv"]],)
        case "OKP":
            return OKPAlgorithm.from_jwk(pick("crv", "x")), ("EdDSA",)
        case _:
            raise ValueError("another kind of key")


class KeySet:
    """The keys of the provider, and the task that keeps them up to date."""

    def __init__(
        self,
        read: Callable[[], bytes],
        source: str,
        algorithms: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        """`read` reads the document, in a thread. `source` is its name in the log. The clock is monotonic."""
        self._read = read
        self._source = source
        self._algorithms = algorithms
        self._clock = clock
        self._keys: dict[str | None, VerificationKey] = {}
        self.version = 0
        """Grows when the keys change."""
        self._loaded_at: float | None = None  # or failed to load
        self._loading: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def find(self, kid: str | None) -> VerificationKey | None:
        """Return the key with this id."""
        return self._keys.get(kid)

    @property
    def can_load(self) -> bool:
        """Whether `load` may find a key that is unknown now."""
        if self._loading is not None or self._loaded_at is None:
            return True
        return self._clock() - self._loaded_at >= LOAD_INTERVAL_S

    async def load(self) -> None:
        """Load the keys; several callers wait for one load. A failure is logged."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())
        await asyncio.shield(self._loading)

    def start(self) -> None:
        """Load the keys now, and again from time to time, in the running loop."""
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def stop(self) -> None:
        tasks = [each for each in (self._refreshing, self._loading) if each is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _refresh(self) -> None:
        while True:
            await self.load()
            await asyncio.sleep(REFRESH_INTERVAL_S)

    async def _load(self) -> None:
        try:
            keys = parse_keys(await self._read_in_thread(), self._algorithms)
        except KeySourceError as error:
            log.error("OAuth keys not loaded: %s (source=%s)", error, self._source)
        else:
            if keys != self._keys:
                self._keys = keys
                self.version += 1
                count = len(keys.keys() - {None})
                log.info("OAuth keys loaded (source=%s keys=%d)", self._source, count)
        finally:
            self._loaded_at = self._clock()
            self._loading = None

    async def _read_in_thread(self) -> bytes:
        """Read the document in a thread that does not delay the end of the process."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            try:
                document, error = self._read(), None
            except KeySourceError as failure:
                document, error = b"", failure
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(finish, document, error)

        def finish(document: bytes, error: KeySourceError | None) -> None:
            if answer.done():  # cancelled
                return
            if error is None:
                answer.set_result(document)
            else:
                answer.set_exception(error)

        Thread(target=read, name="recado-oauth-keys", daemon=True).start()
        return await answer
