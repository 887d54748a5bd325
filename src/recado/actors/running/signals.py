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
def on_signal(signals: tuple[signal.Signals, ...], stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on each of these signals, or of STOP_SIGNALS if there are none; afterwards the handlers from
    before count again. Use it in the main thread: Python handles signals only there."""
    before = {number: signal.getsignal(number) for number in signals or STOP_SIGNALS}
    try:
        for number in before:
            signal.signal(number, lambda *_: stop())
        yield
    finally:
        for number, handler in before.items():
            # None is a handler that was not set by Python, and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
