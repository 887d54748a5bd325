"""The registry of translators, by which content types choose formats.

Sending: an object is encoded by the content type of its message. A missing content type, or one that no
translator knows, becomes `application/json`, so the receiver always finds the type that was used.

Receiving: an unknown content type is an error. A missing one means JSON, or text for `str`, as many programs set
no content type.

Bytes are never translated: a body of type bytes is sent as it is with the content type of its message, and a
handler for bytes receives every body as it is.

`application/vnd.order+json` is JSON, by its suffix.
"""

import logging
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar, overload

from ..errors import TranslationError, UnknownContentTypeError
from .content_encoding import decompress
from .content_type import parse_content_type
from .json_translator import JsonTranslator
from .message_pack_translator import MessagePackTranslator
from .protobuf_translator import ProtobufTranslator
from .raw_translator import RawTranslator
from .text_translator import TextTranslator
from .translator import Decode, Encode, Translator
from .xml_translator import XmlTranslator
from .yaml_translator import YamlTranslator

T = TypeVar("T")

BODY_BYTES_MAX: Final = 16 << 20
ENTRY_POINT_GROUP: Final = "recado.translators"
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_RAW: Final = "application/octet-stream"
_CACHED_CONTENT_TYPES_MAX: Final = 1024  # content types come from the network

_log = logging.getLogger(__name__)


class Translators:
    """The translators of a program: those of recado, installed ones, and registered ones.

    Installed translators are entry points of the group `recado.translators`, each a class or function that
    returns a `Translator` when it is called without arguments. They are loaded when a content type is not known
    otherwise.

    Args:
        *translators: registered in this order, see `register`.
        body_bytes_max: Larger bodies are neither encoded nor decoded.
    """

    def __init__(self, *translators: Translator, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self.body_bytes_max: Final = body_bytes_max
        self._by_name: dict[str, Translator] = {}
        self._searched_entry_points = False
        self._find_encoder = lru_cache(_CACHED_CONTENT_TYPES_MAX)(self._make_encoder)
        self._find_decoder = lru_cache(_CACHED_CONTENT_TYPES_MAX)(self._make_decoder)
        built_in: tuple[Translator, ...] = (
            JsonTranslator(),
            TextTranslator(),
            XmlTranslator(),
            YamlTranslator(),
            MessagePackTranslator(),
            ProtobufTranslator(),
            RawTranslator(),
        )
        for translator in (*built_in, *translators):
            self.register(translator)

    def register(self, translator: Translator) -> None:
        """Use a translator for its content types, instead of an earlier one."""
        for name in translator.content_types:
            self._by_name[name.lower()] = translator
        self._find_encoder.cache_clear()
        self._find_decoder.cache_clear()

    @property
    def content_types(self) -> list[str]:
        """The known content types."""
        self._load_entry_points()
        return sorted(self._by_name)

    def encode(self, value: object, content_type: str | None = None) -> tuple[bytes, str]:
        """Return the body of an object and the content type that was used. Raises TranslationError."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            body, used = bytes(value), content_type or _RAW
        else:
            encode, used = self._find_encoder(content_type)
            try:
                body = encode(value)
            except Exception as error:  # translators are code of others, too
                raise TranslationError(
                    f"{type(value).__name__} cannot be encoded as {used}: {_text_of(error)}"
                ) from error
        if len(body) > self.body_bytes_max:
            raise self._too_large_error(len(body))
        return body, used

    @overload
    def decode(self, body: bytes, content_type: str | None, target: type[T]) -> T: ...
    @overload
    def decode(self, body: bytes, content_type: str | None, target: Any) -> Any: ...
    def decode(self, body: bytes, content_type: str | None, target: Any) -> Any:
        """Return the object of a body. Raises TranslationError."""
        return self.decoder(content_type, target)(body)

    def decompress(self, body: bytes, content_encoding: str | None, target: Any) -> bytes:
        """Return a body without its content encoding, or as it is if it is to become bytes. Raises TranslationError."""
        if content_encoding is None or target is bytes:
            return body
        return decompress(body, content_encoding, self.body_bytes_max)

    @overload
    def decoder(self, content_type: str | None, target: type[T]) -> Callable[[bytes], T]: ...
    @overload
    def decoder(self, content_type: str | None, target: Any) -> Decode: ...
    def decoder(self, content_type: str | None, target: Any) -> Decode:
        """Return the function that decodes bodies of a content type to a type; it raises TranslationError.

        The function is cached, but not for ever: `register` changes what later calls return.
        Raises UnknownContentTypeError, and TranslationError if the format cannot have the type.
        """
        try:
            return self._find_decoder(content_type, target)
        except TypeError:  # the type is not hashable, such as Annotated with a dict
            return self._make_decoder(content_type, target)

    @overload
    def convert(self, value: object, content_type: str | None, target: type[T]) -> T: ...
    @overload
    def convert(self, value: object, content_type: str | None, target: Any) -> Any: ...
    def convert(self, value: object, content_type: str | None, target: Any) -> Any:
        """Return the body object of a message as another type. Raises TranslationError.

        It is encoded and decoded again, because only the format knows how: in XML, whether one element is a list.
        """
        if target is Any or (isinstance(target, type) and isinstance(value, target)):
            return value
        if isinstance(value, bytes):
            return self.decode(value, content_type, target)
        return self.decode(*self.encode(value, content_type), target)

    def _make_encoder(self, content_type: str | None) -> tuple[Encode, str]:
        name, parameters = parse_content_type(content_type or _JSON)
        translator = self._find(name)
        if translator is None:
            translator, parameters, content_type = self._by_name[_JSON], {}, _JSON
        used = content_type or _JSON
        try:
            return translator.encoder(parameters), used
        except Exception as error:
            raise TranslationError(
                f"nothing can be encoded as {used}: {_text_of(error)}"
            ) from error

    def _make_decoder(self, content_type: str | None, target: Any) -> Decode:
        if target is bytes:
            decode: Decode = bytes
            used = content_type or _RAW
        else:
            used = content_type or (_TEXT if target is str else _JSON)
            name, parameters = parse_content_type(used)
            translator = self._find(name)
            if translator is None:
                raise UnknownContentTypeError(
                    f"unknown content type {used[:100]!r}: register a translator for it, or send one of "
                    f"{', '.join(self.content_types)}"
                )
            try:
                decode = translator.decoder(target, parameters)
            except Exception as error:
                raise TranslationError(
                    f"no body can be decoded as {used[:100]} to {_name_of(target)}: {_text_of(error)}"
                ) from error
        size_max = self.body_bytes_max

        def decode_checked(body: bytes) -> Any:
            if len(body) > size_max:
                raise self._too_large_error(len(body))
            try:
                return decode(body)
            except Exception as error:
                raise TranslationError(
                    f"body of {len(body)} bytes cannot be decoded as {used[:100]} to {_name_of(target)}: "
                    f"{_text_of(error)}"
                ) from error

        return decode_checked

    def _find(self, name: str) -> Translator | None:
        found = self._look_up(name)
        if found is None and not self._searched_entry_points:
            self._load_entry_points()
            found = self._look_up(name)
        return found

    def _look_up(self, name: str) -> Translator | None:
        found = self._by_name.get(name)
        if found is None and "+" in name:
            found = self._by_name.get(f"application/{name.rpartition('+')[2]}")
        return found

    def _load_entry_points(self) -> None:
        if self._searched_entry_points:
            return
        for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP)):
            try:
                translator: Translator = entry_point.load()()
                names = [name.lower() for name in translator.content_types]
            except Exception:  # noqa: BLE001  code of others
                _log.exception(
                    "translator not loaded: its entry point failed (entry_point=%s)", entry_point
                )
                continue
            for name in names:
                self._by_name.setdefault(name, translator)
        self._searched_entry_points = True

    def _too_large_error(self, size: int) -> TranslationError:
        return TranslationError(
            f"body of {size} bytes is larger than {self.body_bytes_max} bytes: send a claim check, or raise "
            "body_bytes_max"
        )


def _name_of(target: Any) -> str:
    return getattr(target, "__qualname__", None) or str(target)


def _text_of(error: Exception) -> str:
    """Return the text of an error, bounded because it goes into a header."""
    return (str(error) or type(error).__name__)[:1000]
