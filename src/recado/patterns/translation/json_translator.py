"""JSON by msgspec."""

from collections.abc import Mapping
from typing import Any

import msgspec

from .content_type import recode_input, recode_output
from .object_model import check_target, from_text_form, is_pydantic_model, to_text_form
from .translator import Decode, Encode


class JsonTranslator:
    """JSON, in UTF-8 unless the content type has another charset."""

    content_types = ("application/json", "text/json")

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(enc_hook=to_text_form).encode

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        return recode_output(self._encode, parameters)

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        if is_pydantic_model(target):
            decode: Decode = target.model_validate_json
        else:
            check_target(target)
            decode = msgspec.json.Decoder(target, dec_hook=from_text_form).decode
        return recode_input(decode, parameters)
