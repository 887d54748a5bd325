"""The commands for an archive's folder: replay, gc and verify. They need no broker; only gc and repairs lock
the folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final

import msgspec

from recado.cli import DONE, FAILED, WRONG_USAGE, complain
from recado.cli.feed_lines import line
from recado.cli.progress import ProgressBar
from recado.feeds.archive.archive import Archive, Checked
from recado.feeds.archive.collection import Limits
from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archive.manifest import DataFile
from recado.feeds.archive.repair import Repaired
from recado.feeds.archive.store import Store
from recado.journal.disk import InUse

LINES_AT_ONCE: Final = 1_000


def replay(chosen: argparse.Namespace) -> int:
    try:
        with Archive.open(chosen.folder) as archive:
            messages = archive.messages(
                start=chosen.start,
                stop=chosen.stop,
                selector=chosen.selector,
                subscriber=chosen.subscriber,
            )
            found = islice(messages, chosen.count)
            while some := list(islice(found, LINES_AT_ONCE)):
                lines = (line(each, as_json=chosen.json, offset=each.offset) for each in some)
                sys.stdout.write("".join(lines))
    except ArchiveError as error:
        return complain(str(error), FAILED)
    return DONE


def gc(chosen: argparse.Namespace) -> int:
    limits = Limits(chosen.max_age, chosen.max_messages, chosen.max_share)
    if limits == Limits():
        hint = "--max-age, --max-messages or --max-share says what need not be kept"
        return complain(f"nothing to do: {hint}", WRONG_USAGE)
    try:
        with Archive.open(chosen.folder) as archive:
            feed = archive.feed
        with Store(chosen.folder, feed) as store:
            report = store.collect(limits, grace=chosen.grace)
    except InUse:
        hint = "give the limits to `recado feed archive` itself, which then keeps to them"
        return complain(f"{chosen.folder}: the archive is at work; {hint}", FAILED)
    except ArchiveError as error:
        return complain(str(error), FAILED)
    if chosen.json:
        print(msgspec.json.encode(report._asdict()).decode())
    else:
        print(
            f"{report.files} files with {report.messages:,} messages ({report.bytes:,} bytes) let go; "
            f"{report.removed} files ({report.freed:,} bytes) deleted after their grace period; "
            f"the first message left has offset {report.first}"
        )
    return DONE


def verify(chosen: argparse.Namespace) -> int:
    if (chosen.sources or chosen.yes) and not chosen.repair:
        return complain("--from and --yes say how to repair; add --repair", WRONG_USAGE)
    try:
        return repair(chosen) if chosen.repair else report(chosen, check(chosen.folder))
    except InUse:
        hint = "stop it first. While it runs it gets lost messages from other archives by itself"
        return complain(f"{chosen.folder}: the archive is at work; {hint}", FAILED)
    except ArchiveError as error:
        return complain(str(error), FAILED)


def check(folder: str) -> list[Checked]:
    """Read all files of the archive, with a progress bar on a terminal if that takes long."""
    with Archive.open(folder) as archive:
        bar = ProgressBar(sum(file.bytes for file in archive.manifest.files), sys.stderr)
        found = []
        for checked in archive.check():
            found.append(checked)
            bar.advance(checked.bytes)
        bar.clear()
        return found


def repair(chosen: argparse.Namespace) -> int:
    with ExitStack() as opened:
        with Archive.open(chosen.folder) as archive:
            feed, own = archive.feed, archive.id
        sources = [opened.enter_context(Archive.open(folder)) for folder in chosen.sources]
        for folder, source in zip(chosen.sources, sources, strict=True):
            if source.feed != feed:
                return complain(f"{folder} is an archive of feed {source.feed}, not {feed}", FAILED)
            if source.id == own:
                return complain(f"{folder} is a copy of the archive that is to be repaired", FAILED)
        store = opened.enter_context(Store(chosen.folder, feed))
        found = check(chosen.folder)
        files = [each.file for each in found if each.damage and isinstance(each.file, DataFile)]
        repaired = [store.repair(file, sources, drop=chosen.yes) for file in files]
        return report(chosen, check(chosen.folder) if repaired else found, repaired)


def report(
    chosen: argparse.Namespace, found: list[Checked], repaired: Sequence[Repaired] = ()
) -> int:
    damaged = [each for each in found if each.damage is not None]
    if chosen.json:
        about = as_json(found, repaired)
        print(msgspec.json.format(msgspec.json.encode(about), indent=2).decode())
    else:
        for one in repaired:
            print(
                f"{one.path}: {one.damaged:,} damaged rows, {one.from_journal:,} restored from the journal, "
                f"{one.from_archives:,} from other archives; {count(one):,} messages are in none of them"
            )
        for each in damaged:
            print(each.damage)
        size = sum(each.bytes for each in found)
        print(f"{len(found):,} files checked ({size:,} bytes), {len(damaged):,} damaged")
    if damaged:
        return complain(advice(chosen, damaged))
    lost = sum(map(count, repaired))
    return complain(f"{lost:,} messages are lost here") if lost else DONE


def advice(chosen: argparse.Namespace, damaged: list[Checked]) -> str:
    folder = chosen.folder
    if any(each.file is None for each in damaged):
        return f"the journal is damaged: see `recado journal check --data {folder} --repair`"
    if not all(isinstance(each.file, DataFile) for each in damaged):
        return (
            f"move {folder} away and start the archive with an empty folder, to copy other archives"
        )
    if not chosen.repair:
        return "add --repair, and --from FOLDER for other archives of the feed, to restore them"
    return (
        "name more archives of the feed by --from FOLDER, or add --yes to drop what is nowhere else"
    )


def count(repaired: Repaired) -> int:
    """Messages that could not be restored."""
    return sum(each.last - each.first + 1 for each in repaired.lost)


def as_json(found: list[Checked], repaired: Sequence[Repaired]) -> dict[str, object]:
    return {
        "files": len(found),
        "bytes": sum(each.bytes for each in found),
        "damaged": [
            {"file": each.path, "place": each.damage.place, "what": each.damage.what}
            for each in found
            if each.damage is not None
        ],
        "repaired": [
            {
                "file": one.path,
                "rows": one.damaged,
                "from_journal": one.from_journal,
                "from_archives": one.from_archives,
                "lost": [
                    {"publisher": each.publisher.hex(), "first": each.first, "last": each.last}
                    for each in one.lost
                ],
            }
            for one in repaired
        ],
    }
