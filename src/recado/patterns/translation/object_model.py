"""Types that msgspec does not know, which are pydantic's models.

In text formats a model has the form of its JSON, in MessagePack that of its Python values. pydantic is never
imported here: a program that has a model has imported it.
"""

import sys
from typing import Any

import msgspec
from msgspec import inspect


def is_pydantic_model(target: Any) -> bool:
    """Whether a type is a model of pydantic."""
    pydantic = sys.modules.get("pydantic")
    return (
        pydantic is not None and isinstance(target, type) and issubclass(target, pydantic.BaseModel)
    )


def check_target(target: Any) -> None:
    """Raise TypeError for a type that contains a dataclass of pydantic: msgspec would not run its validators."""
    remaining: list[Any] = [inspect.type_info(target)]
    seen: set[int] = set()
    while remaining:
        part = remaining.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, tuple):
            remaining += part
        elif isinstance(part, inspect.Type | inspect.Field):
            if isinstance(part, inspect.DataclassType) and hasattr(
                part.cls, "__pydantic_validator__"
            ):
                raise TypeError(
                    f"{part.cls.__qualname__} is a dataclass of pydantic, whose validators would not run: "
                    "use a model of pydantic, or a plain dataclass"
                )
            remaining += (getattr(part, name) for name in part.__struct_fields__)


def to_text_form(value: Any) -> Any:
    """Return what a text format writes for an object of a type that msgspec does not know."""
    if is_pydantic_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise _unsupported_error(type(value))


def from_text_form(target: Any, value: Any) -> Any:
    """Return an object of a type that msgspec does not know, from the value in a text format."""
    if is_pydantic_model(target):
        return target.model_validate_json(msgspec.json.encode(value, enc_hook=to_text_form))
    raise _unsupported_error(target)


def to_binary_form(value: Any) -> Any:
    """Return what MessagePack has for an object of a type that msgspec does not know."""
    if is_pydantic_model(type(value)):
        return value.model_dump(by_alias=True)
    raise _unsupported_error(type(value))


def from_binary_form(target: Any, value: Any) -> Any:
    """Return an object of a type that msgspec does not know, from the value in MessagePack."""
    if is_pydantic_model(target):
        return target.model_validate(value)
    raise _unsupported_error(target)


def _unsupported_error(target: Any) -> TypeError:
    return TypeError(
        f"{target.__module__}.{target.__qualname__} is not supported: use msgspec.Struct, a dataclass, "
        "TypedDict, attrs, a pydantic model or builtin types"
    )
