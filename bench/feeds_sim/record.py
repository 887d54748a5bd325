"""The seeds without violations, stored between runs: an interrupted run continues where it was.

A seed is clean for the sources with which it was run: the file has a fingerprint of them, and is started again
when it differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / ".cache" / "feeds-sim" / "clean.json"
SOURCES = ("src/recado/feeds", "src/recado/simulator", "bench/feeds_sim")
FEEDS = "src/recado/feeds/"
NOT_SIMULATED = tuple(
    FEEDS + each
    for each in (
        *("archive/", "transport/", "archive_summary.py", "archiver.py", "blocking.py"),
        *("coalescer.py", "connection.py", "driver.py", "feed.py", "inbox.py", "message.py"),
        *("naming.py", "observer.py", "selector_fields.py", "subscription.py"),
    )
)
"""Folders and modules that the simulation does not import: they use the network, the disk or threads, or are for
applications."""


class Content(msgspec.Struct):
    sources: str
    clean: list[tuple[int, int]]
    """First and last of each range."""


class Record:
    def __init__(self, file: Path = FILE, sources: str | None = None) -> None:
        self._file = file
        self._content = Content(sources or fingerprint(), [])
        try:
            found = msgspec.json.decode(file.read_bytes(), type=Content)
        except (FileNotFoundError, msgspec.DecodeError):
            return
        if found.sources == self._content.sources:
            self._content = found

    @property
    def clean(self) -> list[range]:
        return [range(first, last + 1) for first, last in self._content.clean]

    def add(self, seeds: range) -> None:
        """They were clean; it is written down at once."""
        self.join(seeds)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._content))
        new.replace(self._file)

    def join(self, seeds: range) -> None:
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self._content.clean, (seeds.start, seeds.stop - 1)]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        self._content.clean = joined

    def missing(self, wanted: range) -> list[range]:
        """Return the ranges that were not run yet."""
        result = []
        start = wanted.start
        for known in self.clean:
            if known.start >= wanted.stop:
                break
            if known.start > start:
                result.append(range(start, known.start))
            start = max(start, known.stop)
        if start < wanted.stop:
            result.append(range(start, wanted.stop))
        return result


def fingerprint(root: Path = ROOT, sources: Iterable[str] = SOURCES) -> str:
    digest = blake2b(digest_size=12)
    for source in sources:
        for file in sorted((root / source).rglob("*.py")):
            name = file.relative_to(root).as_posix()
            if not name.startswith(NOT_SIMULATED):
                digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
