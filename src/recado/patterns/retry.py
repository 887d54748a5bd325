"""When a failed message is attempted again."""

from typing import TypeAlias

import msgspec

from .errors import CompositionError, RejectMessageError, TranslationError
from .routing.message_field import MessageField

ExceptionTypes: TypeAlias = tuple[type[Exception], ...]


class Retry(msgspec.Struct, frozen=True):
    """Attempt a message up to `attempts` times, with growing delays between.

    The delay after attempt n is `backoff * factor ** (n - 1)` seconds, at most `max_delay`. With `jitter`, each
    delay is reduced by a random share of up to that much, so that messages that failed together do not return
    together. `on` limits retries to these exceptions; others dead-letter the message at once,
    and so do `RejectMessageError` and `TranslationError`, whatever `on` is.
    """

    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    max_delay: float = 300.0
    jitter: float = 0.0
    on: ExceptionTypes = (Exception,)
    ordered_by: MessageField | None = None

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise CompositionError(f"Retry: attempts={self.attempts} must be at least 1")
        if self.backoff < 0 or self.max_delay < 0 or self.factor < 1:
            raise CompositionError(
                f"Retry: backoff={self.backoff} and max_delay={self.max_delay} must not be negative,"
                f" factor={self.factor} must be at least 1"
            )
        if self.ordered_by is not None and self.attempts == 1:
            raise CompositionError("Retry: ordered_by needs attempts of at least 2")
        if not 0 <= self.jitter <= 1:
            raise CompositionError(f"Retry: jitter={self.jitter} must be between 0 and 1")

    def should_retry(self, error: BaseException, attempt: int) -> bool:
        """Whether a message whose attempt number `attempt` raised this error is attempted again."""
        return (
            attempt < self.attempts
            and isinstance(error, self.on)
            and not isinstance(error, RejectMessageError | TranslationError)
        )

    def delay(self, attempt: int, random: float = 0.0) -> float:
        """Return the delay after an attempt in seconds; `random` is a number from 0 to 1."""
        # The exponent is limited so that a large number of attempts cannot overflow.
        delay = self.backoff * self.factor ** min(attempt - 1, _EXPONENT_MAX_COUNT)
        return float(min(delay, self.max_delay) * (1 - self.jitter * random))


_EXPONENT_MAX_COUNT = 64

NO_RETRY = Retry(attempts=1)
