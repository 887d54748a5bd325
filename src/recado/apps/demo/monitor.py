"""Monitor the demo: sample the progress twice a second, show it, and store it for the timeline chart.

A terminal shows a small table that is updated; other outputs get a line every few seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

SAMPLE_INTERVAL_S: Final = 0.5
LINE_INTERVAL_S: Final = 3.0


@dataclass(frozen=True)
class Sample:
    """The progress of all programs at one time."""

    seconds: float
    archived: int
    recorded: int
    is_recording: bool
    computed: int
    """Ticks that Spark has read."""
    rate: float
    """Ticks per second in the last batch."""
    batch_seconds: float

    @property
    def lag(self) -> int:
        return max(self.archived - self.computed, 0)


class DemoDisplay(Protocol):
    """Shows events and samples."""

    def say(self, text: str) -> None:
        """Show an event."""

    def show(self, sample: Sample) -> None:
        """Show the progress."""

    def close(self) -> None: ...


class DemoLines:
    """Events and samples as lines, for logs."""

    def __init__(self, write: Callable[[str], object] = sys.stdout.write) -> None:
        self._write = write
        self._next_line_at = 0.0

    def say(self, text: str) -> None:
        self._write(f"{text}\n")
        sys.stdout.flush()

    def show(self, sample: Sample) -> None:
        if sample.seconds >= self._next_line_at:
            self._next_line_at = sample.seconds + LINE_INTERVAL_S
            self.say(
                f"  {sample.seconds:5.1f} s  "
                + " · ".join(f"{name} {value}" for name, value in _sample_cells(sample))
            )

    def close(self) -> None:
        pass


class DemoScreen:
    """Events as lines and samples as an updated table, for terminals, by rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live: Live | None = Live(console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, sample: Sample) -> None:
        if self._live is not None:
            self._live.update(_sample_table(sample))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _sample_cells(sample: Sample) -> list[tuple[str, str]]:
    """Return the name and the value of each column."""
    state = f"{sample.recorded:,}" if sample.is_recording else f"{sample.recorded:,}, killed"
    return [
        ("archived", f"{sample.archived:,}"),
        ("recorded", state),
        ("read by Spark", f"{sample.computed:,}"),
        ("lag", f"{sample.lag:,}"),
        ("ticks/s", f"{sample.rate:,.0f}"),
        ("batch", f"{sample.batch_seconds:.1f} s"),
    ]


def _sample_table(sample: Sample) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    cells = _sample_cells(sample)
    table.add_row(f"{sample.seconds:5.1f} s", *(name for name, _ in cells), style="dim")
    table.add_row("", *(value for _, value in cells))
    return table


@dataclass
class Monitor:
    """Takes samples in a thread of its own, within its `with` block."""

    display: DemoDisplay
    archived: Callable[[], int]
    recorded: Callable[[], int]
    samples: list[Sample] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    """Events marked in the timeline chart: seconds and label."""
    is_recording: bool = True
    query: Any = None
    """The streaming query, once it runs."""
    on_progress: Callable[[Sample], object] = lambda _: None
    """Called for each sample while the query runs."""

    def __enter__(self) -> Self:
        self._started_at = monotonic()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="demo-monitor", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.display.close()

    @property
    def seconds(self) -> float:
        return monotonic() - self._started_at

    def say(self, text: str, mark: str | None = None) -> None:
        """Show an event; `mark` is its label in the timeline chart, if it appears there."""
        if mark is not None:
            self.events.append((self.seconds, mark))
        self.display.say(f"{self.seconds:5.1f} s  {text}")

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_INTERVAL_S):
            with suppress(OSError):  # a file is being replaced; the next sample sees the new one
                self._take_sample()

    def _take_sample(self) -> None:
        computed, rate, batch_seconds = read_progress(self.query)
        sample = Sample(
            seconds=self.seconds,
            archived=self.archived(),
            recorded=self.recorded(),
            is_recording=self.is_recording,
            computed=computed,
            rate=rate,
            batch_seconds=batch_seconds,
        )
        self.samples.append(sample)
        self.display.show(sample)
        if self.query is not None:
            self.on_progress(sample)


def read_progress(query: Any) -> tuple[int, float, float]:
    """Return the ticks that a stream from an archive has read, its rate, and the duration of its last batch."""
    progress = None if query is None else query.lastProgress
    if not progress or not progress["sources"]:
        return 0, 0.0, 0.0
    (source, *_) = progress["sources"]
    computed = next_offset(source["endOffset"])
    rows = computed - next_offset(source["startOffset"])
    seconds = progress["batchDuration"] / 1000
    return computed, rows / seconds if seconds else 0.0, seconds


def next_offset(offset: Any) -> int:
    """Return `next` of an offset, which Spark reports as JSON text or as a parsed object."""
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    return int(parsed["next"]) if parsed else 0
