"""MessagePack by msgspec."""

from collections.abc import Mapping
from typing import Any

import msgspec

from .object_model import check_target, from_binary_form, to_binary_form
from .translator import Decode, Encode


class MessagePackTranslator:
    """MessagePack, with its own types for bytes and times."""

    content_types = (
        "application/msgpack",
        "application/x-msgpack",
        "application/vnd.msgpack",
    )

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder(enc_hook=to_binary_form).encode

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        return self._encode

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        check_target(target)
        return msgspec.msgpack.Decoder(target, dec_hook=from_binary_form).decode
