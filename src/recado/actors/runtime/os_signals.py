"""Signals of the operating system that end a program in order.

Handlers are set by `signal.signal`, not by the loop: so the handlers from before are restored, also those that
asyncio or the program has set on the loop.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def call_on_first_signal(
    signals: tuple[signal.Signals, ...], stop: Callable[[], object]
) -> Iterator[None]:
    """Call `stop` on the first of these signals, or of STOP_SIGNALS if there are none. The next one has the
    default effect of Python: it ends the program. At the end the handlers from before are restored. Use it in
    the main thread: Python handles signals only there."""
    before = {number: signal.getsignal(number) for number in signals or STOP_SIGNALS}

    def stop_once(*_: object) -> None:
        for number in before:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
        stop()

    try:
        for number in before:
            signal.signal(number, stop_once)
        yield
    finally:
        for number, handler in before.items():
            # None is a handler that was not set by Python, and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
