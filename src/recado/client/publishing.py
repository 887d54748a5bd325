"""The publishing half of a bare channel: frames, numbers, confirms."""

from collections.abc import Sequence

from .rendering import render_publish, render_publishes
from .waits import ConfirmWaits, OnConfirm
from .wire import Wire


class Publishing:
    """What is published has the numbers 1, 2, … from when confirms were asked for."""

    def __init__(self, wire: Wire, channel: int) -> None:
        self._wire = wire
        self._channel = channel
        self._waits: ConfirmWaits | None = None
        self.on_confirm: OnConfirm | None = None

    @property
    def is_confirming(self) -> bool:
        return self._waits is not None

    @property
    def unconfirmed(self) -> int:
        return self._waits.confirms.outstanding if self._waits is not None else 0

    def confirm(self) -> None:
        """Number what comes from now on."""
        confirms = self._wire.session.start_confirms(self._channel)
        self._waits = ConfirmWaits(confirms, self._wire.waits)

    def publish(
        self, exchange: str, key: str, body: bytes, properties: bytes, mandatory: bool
    ) -> int:
        session = self._wire.session
        session.write(
            render_publish(
                self._channel, exchange, key, body, properties, mandatory, session.frame_max
            )
        )
        if self._waits is None:
            return 0
        self._waits.confirms.published += 1
        return self._waits.confirms.published

    def publish_many(
        self, exchange: str, key: str, bodies: Sequence[bytes], properties: bytes, mandatory: bool
    ) -> range:
        if len(bodies) == 1:
            number = self.publish(exchange, key, bodies[0], properties, mandatory)
            return range(number, number + (number > 0))
        session = self._wire.session
        session.write(
            *render_publishes(
                self._channel, exchange, key, bodies, properties, mandatory, session.frame_max
            )
        )
        if self._waits is None:
            return range(0)
        first = self._waits.confirms.published + 1
        self._waits.confirms.published += len(bodies)
        return range(first, first + len(bodies))

    def waits(self) -> ConfirmWaits:
        if self._waits is None:
            raise ValueError("confirms were not asked for: open the channel with confirms=True")
        return self._waits

    def settled(self, numbers: range, *, ok: bool) -> None:
        if self._waits is not None:
            self._waits.settled(numbers, ok=ok)
        if self.on_confirm is not None:
            self.on_confirm(numbers, ok)

    def fail(self, error: Exception) -> None:
        if self._waits is not None:
            self._waits.fail(error)
