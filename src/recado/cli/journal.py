"""`recado journal check`: verify every record that a node keeps on disk, and drop what is damaged on demand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from recado.cli import DONE, FAILED, WRONG_USAGE, complain, told
from recado.cli.flags import effective, grammar
from recado.cli.progress import ProgressBar
from recado.journal.check import Checked, check, repair
from recado.journal.disk import FolderDisk
from recado.journal.record import Unknown

HINT = "add --repair to see what would have to be dropped"
WARNING = "nothing is dropped yet: copy the folder first, then add --yes"

Found = list[tuple[Path, Checked]]


def journal_check(options: Sequence[str]) -> int:
    about = "Verify every record of a data folder whose node is stopped. Exit status 1: there is damage."
    parser = grammar("journal check", about, listens=False)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--repair", action="store_true", help="say what would have to be dropped")
    parser.add_argument(
        "--yes", action="store_true", help="with --repair: drop it (copy the folder first)"
    )
    chosen = parser.parse_args(options)
    data = effective(chosen).settings.node.data
    if data is None:
        return complain("which folder? --data DIR or node.data names it", WRONG_USAGE)
    try:
        folders = journals_in(Path(data))
        if not folders:
            return complain(f"there is no journal in {data}; is it a data folder of recado's?")
        return verify(folders, FolderDisk(data), chosen)
    except BrokenPipeError:
        raise
    except OSError as error:
        return complain(told(error), FAILED)
    except Unknown as error:
        return complain(f"{data}: {error}", FAILED)


def verify(folders: list[Path], whole: FolderDisk, chosen: argparse.Namespace) -> int:
    try:
        whole.lock()
        found = list(check_all(folders))
        print_json(found) if chosen.json else print_table(found)
        damaged = sum(bool(file.damages) for _, file in found)
        if not damaged:
            return DONE
        if not chosen.repair:
            return complain(f"damaged files: {damaged}; {HINT}")
        say_drops(found, done=chosen.yes)
        if not chosen.yes:
            return complain(WARNING)
        for folder in folders:
            repair(FolderDisk(folder), [file for where, file in found if where == folder])
        left = sum(bool(file.damages) for _, file in check_all(folders))
        return complain(f"still damaged: {left}; restore them from a copy") if left else DONE
    finally:
        whole.close()


def journals_in(data: Path) -> list[Path]:
    """The node's own journal, and one for each stream."""
    folders = [data / "journal", *sorted((data / "streams").glob("*"))]
    return [folder for folder in folders if folder.is_dir()]


def check_all(folders: list[Path]) -> Iterator[tuple[Path, Checked]]:
    size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
    bar = ProgressBar(size, sys.stderr)
    for folder in folders:
        for checked in check(FolderDisk(folder)):
            yield folder, checked
            bar.advance(checked.size)
    bar.clear()


def print_table(found: Found) -> None:
    width = max((len(str(folder / file.file)) for folder, file in found), default=0)
    for folder, file in found:
        state = "damaged" if file.damages else "whole"
        if file.unfinished:
            state += f", then {file.unfinished:,} bytes of an unfinished write (no damage)"
        path = str(folder / file.file)
        print(f"{path:{width}} {file.records:>12,} records {file.size:>14,} bytes  {state}")
        for damage in file.damages:
            at = damage.position - file.base
            print(f"  at byte {at:,}: {damage.what} ({damage.size:,} bytes)")


def print_json(found: Found) -> None:
    rows = [
        {
            "file": str(folder / file.file),
            "records": file.records,
            "bytes": file.size,
            "unfinished": file.unfinished,
            "damages": [
                {"position": damage.position, "bytes": damage.size, "what": damage.what}
                for damage in file.damages
            ],
        }
        for folder, file in found
    ]
    print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())


def say_drops(found: Found, *, done: bool) -> None:
    for folder, file in found:
        for damage in file.damages:
            where = f"{folder / file.file} at byte {damage.position - file.base:,}"
            if damage.position == file.base and not damage.last:
                verb = "is" if done else "would be"
                print(f"{where}: the header {verb} written anew", file=sys.stderr)
            else:
                verb = "are" if done else "would be"
                print(f"{where}: {damage.size:,} bytes {verb} dropped", file=sys.stderr)
