"""Bodies of requests, read as structs. Their types are also the schemas in the description of the API."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from .request import ApiRequest, bad_request

B = TypeVar("B", bound=msgspec.Struct)

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Texts = Annotated[list[str] | str, msgspec.Meta(description="A list, or a text with commas.")]

SHOWN_VALUE_MAX_COUNT: Final = 80  # characters of a wrong value in a reason
REASON_MAX_COUNT: Final = 300  # characters: msgspec quotes unknown names, which a client chooses
# Where msgspec writes the location in an error: " - at `$.headers[0]`".
_PATH: Final = re.compile(r" - at `(?:key in )?\$(.*)`$")
_fields = functools.cache(msgspec.structs.fields)


def read_body(request: ApiRequest, kind: type[B]) -> B:
    """Return the body of a request as a struct. Raises `ApiError` that names the wrong or missing fields."""
    return read_fields(request.object(), kind)


def read_fields(values: Mapping[str, Any], kind: type[B]) -> B:
    """Return the fields of a JSON object as a struct; other fields are ignored. Raises `ApiError`.

    As in RabbitMQ, the strings `true` and `false` are accepted for a boolean: `rabbitmqadmin` sends them.
    """
    missing = [
        field.encode_name
        for field in _fields(kind)
        if field.required and field.encode_name not in values
    ]
    if missing:
        raise bad_request(f"[{','.join(f'{{key_missing,{name}}}' for name in missing)}]")
    converted: dict[str, Any] = {}
    for field in _fields(kind):
        if field.encode_name in values:
            value = values[field.encode_name]
            if field.type is bool and value in ("true", "false"):
                value = value == "true"
            converted[field.name] = convert_field(field.encode_name, value, field.type)
    return kind(**converted)


def convert_field(name: str, value: object, kind: Any) -> Any:
    """Return a value as this type. Raises `ApiError` that names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if get_origin(kind) is Literal:
            expected = f"expected one of {', '.join(get_args(kind))}, got {_describe(value)}"
            raise bad_request(f"{name}: {expected}") from error
        text = str(error)
        path = _PATH.search(text)
        if path is not None:
            name, text = name + path[1], text[: path.start()]
        text = text[:1].lower() + text[1:].replace("`", "")
        raise bad_request(f"{name}: {text[:REASON_MAX_COUNT]}") from error


def _describe(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_VALUE_MAX_COUNT else f"{text[: SHOWN_VALUE_MAX_COUNT - 3]}..."
