"""Claim Check: large bodies are stored outside of messages, and messages carry a claim.

    | {"digest": "9f86d081…", "size": 104857600, "content_type": "image/png"} |  application/vnd.recado.claim+json

The content type says that a body is a claim, so small bodies pass both steps unchanged.
"""

import asyncio
from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec

from ..errors import ClaimError
from ..message import Message
from ..step import FlowStep, Outputs
from ..translation import Translators
from ..translation.content_type import parse_content_type
from .claim_store import ClaimStore

CLAIM_CONTENT_TYPE: Final = "application/vnd.recado.claim+json"
CLAIM_BODY_BYTES_MAX: Final = 256 << 20
CLAIM_THRESHOLD_BYTES: Final = 64 << 10


class Claim(msgspec.Struct, frozen=True):
    """What a message carries instead of its body."""

    digest: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """SHA-256 of the body, in hexadecimal digits."""
    size: Annotated[int, msgspec.Meta(ge=0)]
    content_type: str


class ClaimCheck(FlowStep):
    """Store bodies of `threshold_bytes` or more, and send claims instead. An async step.

    Bodies are bounded by the translators, to 256 MiB by default.
    """

    def __init__(
        self,
        store: ClaimStore,
        *,
        threshold_bytes: int = CLAIM_THRESHOLD_BYTES,
        translators: Translators | None = None,
    ) -> None:
        self._store = store
        self._threshold_bytes = threshold_bytes
        self._translators = translators or Translators(body_bytes_max=CLAIM_BODY_BYTES_MAX)

    async def process(self, message: Message[Any]) -> Outputs:
        body, content_type = self._translators.encode(message.body, message.content_type)
        if len(body) < self._threshold_bytes:
            return (message,)
        digest = await asyncio.to_thread(self._put, body)
        claim = Claim(digest, len(body), content_type)
        return (message.replace(body=claim, content_type=CLAIM_CONTENT_TYPE),)

    def _put(self, body: bytes) -> str:
        digest = sha256(body).hexdigest()
        self._store.put(digest, body)
        return digest


class ClaimRedeem(FlowStep):
    """Replace claims by the bodies that were stored, decoded to the type `target`. An async step.

    Other messages pass unchanged. Claims are not trusted: a body that is larger than the translators accept
    (256 MiB by default), or whose digest is another one, is refused with `ClaimError`.
    """

    def __init__(
        self,
        store: ClaimStore,
        target: Any = Any,
        *,
        translators: Translators | None = None,
    ) -> None:
        self._store = store
        self._target = target
        self._translators = translators or Translators(body_bytes_max=CLAIM_BODY_BYTES_MAX)

    async def process(self, message: Message[Any]) -> Outputs:
        if parse_content_type(message.content_type or "")[0] != CLAIM_CONTENT_TYPE:
            return (message,)
        claim = self._translators.convert(message.body, message.content_type, Claim)
        size_max = self._translators.body_bytes_max
        if claim.size > size_max:
            raise ClaimError(
                f"body {claim.digest} of {claim.size} bytes is larger than {size_max} bytes: raise "
                "body_bytes_max of the translators"
            )
        body = await asyncio.to_thread(self._get, claim)
        decoded = self._translators.decode(body, claim.content_type, self._target)
        return (message.replace(body=decoded, content_type=claim.content_type),)

    def _get(self, claim: Claim) -> bytes:
        body = self._store.get(claim.digest, claim.size)
        if len(body) != claim.size or sha256(body).hexdigest() != claim.digest:
            raise ClaimError(
                f"body {claim.digest} has changed in its store: it is not the one of the claim"
            )
        return body
