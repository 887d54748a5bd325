"""Bytes that belong to no other format."""

from collections.abc import Mapping
from typing import Any

from .translator import Decode, Encode


class RawTranslator:
    """The body itself. The only type is bytes."""

    content_types = ("application/octet-stream",)

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        return _reject_objects

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        if target not in (bytes, Any, object):
            raise TypeError(f"it is read as bytes, not as {target}")
        return bytes


def _reject_objects(value: Any) -> bytes:
    """The registry passes bytes on itself; anything else needs a format."""
    raise TypeError(f"it is written from bytes, not from {type(value).__name__}")
