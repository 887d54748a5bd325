"""The commands for an archive's folder: replay and gc. No broker is needed, and replay takes no lock."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from typing import Final

import msgspec

from recado.cli import DONE, FAILED, WRONG_USAGE, complain
from recado.cli.feed_lines import line
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.collection import Limits
from recado.feeds.archive.errors import ArchiveError
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
