"""`recado journal check`: verify every record on disk, and drop damaged ones on request."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec

from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, describe_os_error, print_error
from recado.cli.flags import build_parser, load_config_from_flags
from recado.cli.progress import ProgressBar
from recado.journal.check import SegmentReport, check_segments, repair_segments
from recado.journal.disk import FolderDisk
from recado.journal.record import UnknownFormatError

REPAIR_HINT = "add --repair to see what would be dropped"
REPAIR_WARNING = "nothing was dropped: copy the folder first, then add --yes"

CheckedFiles = list[tuple[Path, SegmentReport]]


def run_journal_check(options: Sequence[str]) -> int:
    description = (
        "Verify every record of the data folder of a stopped node. Exit status 1: damaged."
    )
    parser = build_parser("journal check", description, has_listener=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--repair", action="store_true", help="show what would be dropped")
    parser.add_argument(
        "--yes",
        action="store_true",
        help="with --repair: drop damaged records (copy the folder first)",
    )
    args = parser.parse_args(options)
    data = load_config_from_flags(args).settings.node.data
    if data is None:
        return print_error("missing data folder: set --data DIR or node.data", EXIT_USAGE)
    try:
        folders = find_journals(Path(data))
        if not folders:
            return print_error(f"no journal found in {data}: is it a data folder of recado?")
        return verify_journals(folders, FolderDisk(data), args)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)
    except UnknownFormatError as error:
        return print_error(f"{data}: {error}", EXIT_FAILED)


def verify_journals(folders: list[Path], data_disk: FolderDisk, args: argparse.Namespace) -> int:
    try:
        data_disk.lock()
        found = list(check_journals(folders))
        print_json(found) if args.json else print_table(found)
        damaged = sum(bool(file.damages) for _, file in found)
        if not damaged:
            return EXIT_OK
        if not args.repair:
            return print_error(f"damaged files: {damaged}; {REPAIR_HINT}")
        print_drops(found, done=args.yes)
        if not args.yes:
            return print_error(REPAIR_WARNING)
        for folder in folders:
            repair_segments(
                FolderDisk(folder),
                [file for checked_folder, file in found if checked_folder == folder],
            )
        damaged_count = sum(bool(file.damages) for _, file in check_journals(folders))
        return (
            print_error(f"files still damaged: {damaged_count}; restore them from a backup")
            if damaged_count
            else EXIT_OK
        )
    finally:
        data_disk.close()


def find_journals(data: Path) -> list[Path]:
    """Return the folders of the node's own journal and of each stream's."""
    folders = [data / "journal", *sorted((data / "streams").glob("*"))]
    return [folder for folder in folders if folder.is_dir()]


def check_journals(folders: list[Path]) -> Generator[tuple[Path, SegmentReport]]:
    """Yield the report of each file; in a terminal, show a progress bar if there is much to read."""
    size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
    bar = ProgressBar(size, sys.stderr)
    try:
        for folder in folders:
            for checked in check_segments(FolderDisk(folder)):
                yield folder, checked
                bar.advance(checked.size)
    finally:
        bar.clear()


def print_table(found: CheckedFiles) -> None:
    width = max((len(str(folder / file.file)) for folder, file in found), default=0)
    for folder, file in found:
        state = "damaged" if file.damages else "intact"
        if file.unfinished_bytes:
            state += f", then {file.unfinished_bytes:,} bytes of an incomplete write (no damage)"
        path = str(folder / file.file)
        print(f"{path:{width}} {file.record_count:>12,} records {file.size:>14,} bytes  {state}")
        for damage in file.damages:
            offset = damage.position - file.base
            print(f"  at byte {offset:,}: {damage.reason} ({damage.size:,} bytes)")


def print_json(found: CheckedFiles) -> None:
    rows = [
        {
            "file": str(folder / file.file),
            "records": file.record_count,
            "bytes": file.size,
            "unfinished": file.unfinished_bytes,
            "damages": [
                {"position": damage.position, "bytes": damage.size, "what": damage.reason}
                for damage in file.damages
            ],
        }
        for folder, file in found
    ]
    print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())


def print_drops(found: CheckedFiles, *, done: bool) -> None:
    for folder, file in found:
        for damage in file.damages:
            location = f"{folder / file.file} at byte {damage.position - file.base:,}"
            # Damage at the start is a damaged header, or (`is_last`) a file that is missing as a whole.
            if damage.position == file.base and not damage.is_last:
                verb = "is" if done else "would be"
                print(f"{location}: the header {verb} rewritten", file=sys.stderr)
            else:
                verb = "are" if done else "would be"
                print(f"{location}: {damage.size:,} bytes {verb} dropped", file=sys.stderr)
