"""Content types (`application/json; charset=utf-8`) and the charsets in which bodies are accepted."""

import codecs
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

_OTHER_CHARSETS: Final = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le"),
    *("ascii", "koi8-r", "koi8-u", "big5", "gb18030", "gb2312", "gbk"),
    *("shift_jis", "euc_jp", "euc_kr"),
)
CHARSETS: Final = frozenset(
    [
        *_OTHER_CHARSETS,
        *(f"iso8859-{part}" for part in range(1, 17) if part != 12),
        *(f"cp{page}" for page in range(1250, 1259)),
    ]
)
"""By the names of Python's codecs. Others, such as punycode, need quadratic time or are no charsets."""


def parse_content_type(content_type: str) -> tuple[str, dict[str, str]]:
    """Return the name and the parameters of a content type, names in lower case."""
    name, *rest = content_type.split(";")
    parameters = {}
    for part in rest:
        key, _, value = part.partition("=")
        parameters[key.strip().lower()] = value.strip().strip('"')
    return name.strip().lower(), parameters


def find_charset(parameters: Mapping[str, str]) -> str | None:
    """Return the codec of the parameter `charset`; None for UTF-8. Raises LookupError for an unknown charset."""
    charset = parameters.get("charset")
    if charset is None:
        return None
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        name = ""
    if name not in CHARSETS:
        raise LookupError(f"unknown charset {charset[:100]!r}")
    return None if name == "utf-8" else name


def recode_output(
    encode: Callable[[Any], bytes], parameters: Mapping[str, str]
) -> Callable[[Any], bytes]:
    """Return an encoder whose output, which is UTF-8, is converted to the charset of the parameters."""
    charset = find_charset(parameters)
    if charset is None:
        return encode
    return lambda value: encode(value).decode().encode(charset)


def recode_input(
    decode: Callable[[bytes], T], parameters: Mapping[str, str]
) -> Callable[[bytes], T]:
    """Return a decoder whose input is converted to UTF-8 from the charset of the parameters."""
    charset = find_charset(parameters)
    if charset is None:
        return decode
    return lambda body: decode(body.decode(charset).encode())
