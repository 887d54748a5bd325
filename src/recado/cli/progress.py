"""A progress bar for commands that read many bytes."""

from __future__ import annotations

from typing import Final, TextIO

SHOWN_BYTES_MIN: Final = 256 << 20
"""Reading so much takes a second or more."""
WIDTH_COUNT: Final = 40


class ProgressBar:
    """Shown on a terminal only, if there is enough to read."""

    def __init__(self, total_bytes: int, stream: TextIO) -> None:
        self._total_bytes = total_bytes
        self._stream = stream
        self._done_bytes = 0
        self._is_shown = total_bytes >= SHOWN_BYTES_MIN and stream.isatty()

    def advance(self, count_bytes: int) -> None:
        self._done_bytes += count_bytes
        if self._is_shown:
            share = min(self._done_bytes / self._total_bytes, 1.0)
            bar = "#" * round(WIDTH_COUNT * share)
            self._stream.write(f"\r[{bar:{WIDTH_COUNT}}] {share:4.0%}")
            self._stream.flush()

    def clear(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
