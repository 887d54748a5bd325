"""Plain text."""

from collections.abc import Mapping
from typing import Any

from .content_type import find_charset
from .translator import Decode, Encode


class TextTranslator:
    """Text, in UTF-8 unless the content type has another charset. The only type is str."""

    content_types = ("text/plain", "application/text")

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        charset = find_charset(parameters) or "utf-8"

        def encode(value: Any) -> bytes:
            if not isinstance(value, str):
                raise TypeError(f"text is written from str, not from {type(value).__name__}")
            return value.encode(charset)

        return encode

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        if target not in (str, Any, object):
            raise TypeError(f"text is read as str, not as {target}")
        charset = find_charset(parameters) or "utf-8"
        return lambda body: body.decode(charset)
