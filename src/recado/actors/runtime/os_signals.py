"""Graceful shutdown on SIGTERM and SIGINT.

Handlers are installed by `signal.signal` and not by the loop, so that the previous handlers can be restored,
also those that asyncio or the program has installed on the loop.
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
    """Call `stop` on the first of `signals`, or of STOP_SIGNALS if that is empty.

    A second signal has Python's default effect: it ends the program. The previous handlers are restored at the
    end of the block. Use it in the main thread, the only one in which Python handles signals.
    """
    previous = {number: signal.getsignal(number) for number in signals or STOP_SIGNALS}

    def stop_once(*_: object) -> None:
        for number in previous:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
        stop()

    try:
        for number in previous:
            signal.signal(number, stop_once)
        yield
    finally:
        for number, handler in previous.items():
            # None: the handler was not installed by Python, and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
