"""Progress of commands that take a while: a line on standard error that is written again and again."""

from __future__ import annotations

from typing import Final, TextIO

from recado.cli.terminal import escape_unprintable, width_of

SHOWN_BYTES_MIN: Final = 256 << 20
"""Reading this much takes a second or more."""
WIDTH_COUNT: Final = 30


def format_bar(share: float) -> str:
    """Return a bar for a share of 0 to 1, with the percentage."""
    share = min(share, 1.0)
    bar = "#" * round(WIDTH_COUNT * share)
    return f"[{bar:{WIDTH_COUNT}}] {share:4.0%}"


class StatusLine:
    """The last line of a terminal, which each call replaces; nothing is written elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_shown = stream.isatty()

    def show(self, text: str) -> None:
        if self.is_shown:
            line = escape_unprintable(text)[: width_of(self._stream) - 1]
            self._stream.write(f"\r{line}\x1b[K")
            self._stream.flush()

    def clear(self) -> None:
        if self.is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class ProgressBar:
    """A bar for commands that read many bytes, shown if there is enough to read."""

    def __init__(self, total_bytes: int, stream: TextIO) -> None:
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._line = StatusLine(stream) if total_bytes >= SHOWN_BYTES_MIN else None

    def advance(self, count_bytes: int) -> None:
        self._done_bytes += count_bytes
        if self._line is not None:
            self._line.show(format_bar(self._done_bytes / self._total_bytes))

    def clear(self) -> None:
        if self._line is not None:
            self._line.clear()
