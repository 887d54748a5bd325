"""Commands for the folder of an archive: replay, gc and verify. They need no broker; gc and repairs lock
the folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final

import msgspec

from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, print_error
from recado.cli.feed_output import format_message
from recado.cli.progress import ProgressBar
from recado.feeds.archive.archive import Archive, FileCheck
from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archive.manifest import DataFile
from recado.feeds.archive.repair import RepairResult
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.journal.disk import FolderInUseError

LINES_PER_WRITE: Final = 1_000


def print_messages(args: argparse.Namespace) -> int:
    try:
        with Archive.open(args.folder) as archive:
            messages = archive.messages(
                start=args.start,
                stop=args.stop,
                selector=args.selector,
                subscriber=args.subscriber,
            )
            found = islice(messages, args.count)
            while batch := list(islice(found, LINES_PER_WRITE)):
                lines = (
                    format_message(message, as_json=args.json, offset=message.offset)
                    for message in batch
                )
                sys.stdout.write("".join(lines))
    except ArchiveError as error:
        return print_error(str(error), EXIT_FAILED)
    return EXIT_OK


def collect_garbage(args: argparse.Namespace) -> int:
    limits = RetentionLimits(args.max_age, args.max_messages, args.max_share)
    if limits == RetentionLimits():
        hint = "set --max-age, --max-messages or --max-share"
        return print_error(f"nothing to do: {hint}", EXIT_USAGE)
    try:
        with Archive.open(args.folder) as archive:
            feed = archive.feed
        with ArchiveStore(args.folder, feed) as store:
            if args.dry_run:
                return print_expired(args, store.select_expired(limits))
            report = store.apply_retention(limits, grace=args.grace)
    except FolderInUseError:
        hint = "set the limits of `recado feed archive` instead"
        return print_error(f"{args.folder}: the archive is running; {hint}", EXIT_FAILED)
    except ArchiveError as error:
        return print_error(str(error), EXIT_FAILED)
    if args.json:
        print(msgspec.json.encode(report._asdict()).decode())
    else:
        print(
            f"{report.files} files with {report.messages:,} messages ({report.bytes:,} bytes) removed; "
            f"{report.removed} files ({report.freed:,} bytes) deleted after their grace period; "
            f"the oldest message now has offset {report.first}"
        )
    return EXIT_OK


def print_expired(args: argparse.Namespace, files: Sequence[DataFile]) -> int:
    messages, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    if args.json:
        result = {"dry_run": True, "files": len(files), "messages": messages, "bytes": size}
        print(msgspec.json.encode(result).decode())
    else:
        print(f"would remove {len(files):,} files with {messages:,} messages ({size:,} bytes)")
    return EXIT_OK


def verify_archive(args: argparse.Namespace) -> int:
    if (args.sources or args.yes) and not args.repair:
        return print_error("--from and --yes need --repair", EXIT_USAGE)
    try:
        return repair_files(args) if args.repair else print_report(args, check_files(args.folder))
    except FolderInUseError:
        hint = (
            "stop it first. A running archive recovers lost messages from other archives by itself"
        )
        return print_error(f"{args.folder}: the archive is running; {hint}", EXIT_FAILED)
    except ArchiveError as error:
        return print_error(str(error), EXIT_FAILED)


def check_files(folder: str) -> list[FileCheck]:
    """Check all files of the archive; on a terminal, show a progress bar if the archive is large."""
    with Archive.open(folder) as archive:
        bar = ProgressBar(sum(file.bytes for file in archive.manifest.files), sys.stderr)
        found = []
        for checked in archive.check_files():
            found.append(checked)
            bar.advance(checked.bytes)
        bar.clear()
        return found


def repair_files(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        with Archive.open(args.folder) as archive:
            feed, archive_id = archive.feed, archive.id
        sources = [stack.enter_context(Archive.open(folder)) for folder in args.sources]
        for folder, source in zip(args.sources, sources, strict=True):
            if source.feed != feed:
                return print_error(
                    f"{folder} is an archive of feed {source.feed}, not {feed}", EXIT_FAILED
                )
            if source.id == archive_id:
                return print_error(f"{folder} is a copy of the archive to repair", EXIT_FAILED)
        store = stack.enter_context(ArchiveStore(args.folder, feed))
        found = check_files(args.folder)
        files = [check.file for check in found if check.damage and isinstance(check.file, DataFile)]
        repaired = [store.repair(file, sources, drop=args.yes) for file in files]
        return print_report(args, check_files(args.folder) if repaired else found, repaired)


def print_report(
    args: argparse.Namespace, found: list[FileCheck], repaired: Sequence[RepairResult] = ()
) -> int:
    damaged = [check for check in found if check.damage is not None]
    if args.json:
        report = to_json(found, repaired)
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        for result in repaired:
            print(
                f"{result.path}: {result.damaged_rows:,} damaged rows, {result.journal_rows:,} restored"
                " from the journal, "
                f"{result.archive_rows:,} from other archives; {count_lost(result):,} messages could not be restored"
            )
        for check in damaged:
            print(check.damage)
        size = sum(check.bytes for check in found)
        print(f"{len(found):,} files checked ({size:,} bytes), {len(damaged):,} damaged")
    if damaged:
        return print_error(advise(args, damaged))
    lost = sum(map(count_lost, repaired))
    return print_error(f"{lost:,} messages are lost in this archive") if lost else EXIT_OK


def advise(args: argparse.Namespace, damaged: list[FileCheck]) -> str:
    folder = args.folder
    if any(check.file is None for check in damaged):
        return f"the journal is damaged: run `recado journal check --data {folder} --repair`"
    if not all(isinstance(check.file, DataFile) for check in damaged):
        return (
            f"move {folder} away and start the archive with an empty folder to copy other archives"
        )
    if not args.repair:
        return "add --repair to restore them, and --from FOLDER for other archives of the feed"
    return "add more archives of the feed with --from FOLDER, or --yes to drop rows that cannot be restored"


def count_lost(repaired: RepairResult) -> int:
    """Return the number of messages that could not be restored."""
    return sum(lost.last - lost.first + 1 for lost in repaired.lost)


def to_json(found: list[FileCheck], repaired: Sequence[RepairResult]) -> dict[str, object]:
    return {
        "files": len(found),
        "bytes": sum(check.bytes for check in found),
        "damaged": [
            {"file": check.path, "place": check.damage.location, "what": check.damage.reason}
            for check in found
            if check.damage is not None
        ],
        "repaired": [
            {
                "file": result.path,
                "rows": result.damaged_rows,
                "from_journal": result.journal_rows,
                "from_archives": result.archive_rows,
                "lost": [
                    {"publisher": lost.publisher.hex(), "first": lost.first, "last": lost.last}
                    for lost in result.lost
                ],
            }
            for result in repaired
        ],
    }
