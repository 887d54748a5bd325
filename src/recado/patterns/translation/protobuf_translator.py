"""Protobuf, for generated message classes."""

from collections.abc import Mapping
from typing import Any

from ..extra import import_package
from .translator import Decode, Encode


class ProtobufTranslator:
    """Protobuf. The types are generated message classes; a body does not say which one it is."""

    content_types = (
        "application/x-protobuf",
        "application/protobuf",
        "application/vnd.google.protobuf",
    )

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        message_class = import_package("google.protobuf.message").Message

        def encode(value: Any) -> bytes:
            if not isinstance(value, message_class):
                raise TypeError(
                    f"protobuf is written from generated message classes, not from {type(value).__name__}"
                )
            body: bytes = value.SerializeToString()
            return body

        return encode

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        message_class = import_package("google.protobuf.message").Message
        if not (isinstance(target, type) and issubclass(target, message_class)):
            raise TypeError(f"protobuf is read as a generated message class, not as {target}")
        chosen: Any = target
        decode: Decode = chosen.FromString
        return decode
