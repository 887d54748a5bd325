"""Canonical Data Model and Normaliser: one type for the messages of several senders."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, get_type_hints

from ..errors import CompositionError, TranslationError
from ..message import Message
from ..routing import SelectorLike, to_predicate
from ..step import FlowStep, Outputs
from ..translation import Translators
from ..translation.content_type import parse_content_type

Normalise: TypeAlias = Callable[[Any], Any]

_JSON: Final = "application/json"


class CanonicalModel(FlowStep):
    """Convert each body to the type `model`; bodies that do not fit are invalid messages."""

    def __init__(self, model: Any, *, translators: Translators | None = None) -> None:
        self._model = model
        self._translators = translators or Translators()

    def process(self, message: Message[Any]) -> Outputs:
        body = self._translators.convert(message.body, message.content_type, self._model)
        return (message.with_body(body),)


class Normaliser(FlowStep):
    """Convert the messages of several formats to one canonical model.

        Normaliser(
            Order,
            formats={"application/xml": from_supplier, "text/csv": from_csv},
            rules={"headers.source = 'legacy'": from_legacy},
        )

    Each function gets the body and returns the model. If its parameter has a type, the body is converted to it
    first: `def from_supplier(order: SupplierOrder) -> Order`. `rules` are selectors or functions of the message and
    are tried first, in order; `formats` are content types, and a missing one is JSON. A body that is a `model`
    already passes, and any other is an invalid message. Results are sent as `content_type`.
    """

    def __init__(
        self,
        model: type,
        *,
        formats: Mapping[str, Normalise] | None = None,
        rules: Mapping[SelectorLike, Normalise] | None = None,
        content_type: str = _JSON,
        translators: Translators | None = None,
    ) -> None:
        if not formats and not rules:
            raise CompositionError("a normaliser has formats, rules or both")
        self._model = model
        self._content_type = content_type
        self._translators = translators or Translators()
        self._formats = {
            name.lower(): (function, _parameter_type(function))
            for name, function in (formats or {}).items()
        }
        self._rules = [
            (to_predicate(condition), (function, _parameter_type(function)))
            for condition, function in (rules or {}).items()
        ]

    def process(self, message: Message[Any]) -> Outputs:
        found = next((each for matches, each in self._rules if matches(message)), None)
        if found is None:
            name, _ = parse_content_type(message.content_type or _JSON)
            found = self._formats.get(name)
        if found is None:
            if isinstance(message.body, self._model):
                return (message,)
            raise TranslationError(
                f"no format or rule of the normaliser of {self._model.__qualname__} is for this message: "
                f"its content type is {(message.content_type or _JSON)[:100]!r}"
            )
        normalise, parameter_type = found
        body = normalise(
            self._translators.convert(message.body, message.content_type, parameter_type)
        )
        if not isinstance(body, self._model):
            raise TypeError(
                f"{normalise!r:.100} returned {type(body).__name__}, not {self._model.__qualname__}"
            )
        return (message.replace(body=body, content_type=self._content_type),)


def _parameter_type(function: Normalise) -> Any:
    """Return the type of the first parameter of a function; Any if it has none."""
    try:
        hints = get_type_hints(function)
    except (
        TypeError,
        NameError,
    ):  # a callable that is no function, or a type that is not there at run time
        return Any
    hints.pop("return", None)
    return next(iter(hints.values()), Any)
