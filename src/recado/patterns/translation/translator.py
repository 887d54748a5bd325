"""The port of a format.

A translator makes functions instead of translating itself: the work that depends only on the type and on the
parameters of the content type is done once, not for each message.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[bytes], Any]


class Translator(Protocol):
    """Encodes objects to one format, and decodes them.

    Every exception of these functions becomes a `TranslationError` with its text, so translators need not raise
    one themselves. Bodies are never larger than the limit of the registry; bounding anything else that a body
    can make expensive is up to the translator.
    """

    @property
    def content_types(self) -> tuple[str, ...]:
        """The content types of the format, in lower case and without parameters."""

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        """Return the function that encodes an object, for a content type with these parameters."""

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        """Return the function that decodes a body to the type `target`; `Any` means no particular type."""
