"""Router by regular expressions on the routing key.

The patterns are those of a regex exchange of recado: RE2, which matches in linear time, on the whole key. The
exchange does it in the broker and sends a message to every match; this router works on any broker and sends it to
the first.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from recado.broker.pattern import CompiledPattern, compile_pattern

from ..destination import DestinationLike
from ..errors import CompositionError
from ..message import Message
from ..step import FlowStep, Outputs, Send

MAX_PATTERNS_COUNT: Final = 1_000


class RegexRouter(FlowStep):
    """Send a message to the destination of the first pattern that matches its whole routing key.

        RegexRouter({r"orders[.](eu|us)[.].*": "orders.west"}, otherwise="orders.other")

    Messages that match none are sent to `otherwise`; if it is None, they continue in the flow.
    """

    def __init__(
        self, patterns: Mapping[str, DestinationLike], *, otherwise: DestinationLike | None = None
    ) -> None:
        if len(patterns) > MAX_PATTERNS_COUNT:
            raise CompositionError(
                f"{len(patterns)} patterns, at most {MAX_PATTERNS_COUNT} are allowed"
            )
        self._branches = tuple((_compile(text), each) for text, each in patterns.items())
        self._otherwise = otherwise

    def process(self, message: Message[Any]) -> Outputs:
        key = message.key.encode(errors="surrogatepass")
        for pattern, destination in self._branches:
            if pattern.fullmatch(key) is not None:
                return (Send(destination, message),)
        return (message if self._otherwise is None else Send(self._otherwise, message),)

    def destinations(self) -> Iterable[DestinationLike]:
        yield from (destination for _, destination in self._branches)
        if self._otherwise is not None:
            yield self._otherwise


def _compile(text: str) -> CompiledPattern:
    try:
        return compile_pattern(text)
    except ValueError as error:
        raise CompositionError(f"invalid pattern {text!r}: {error}") from error
