"""The examples of the page about archives, and an archive to run them on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch

from .making import Clock, publisher

PAGE = Path(__file__).resolve().parents[3] / "docs" / "archive.md"
EXAMPLES = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
COUNT = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two days, two symbols, two publishers."""
    clock = Clock()
    with ArchiveStore(tmp_path, "quotes", clock=clock) as store:
        for day in range(2):
            for who in (1, 2):
                block = Block.build(
                    [b'{"price": %d}' % price for price in range(COUNT)],
                    timestamps=int(clock.now * 1e6),
                    keys=[(b"PETR4", b"VALE3")[price % 2] for price in range(COUNT)],
                )
                store.append([MessageBatch(publisher(who), 1 + COUNT * day, block)])
            store.seal()
            clock.now += 86_400
    return tmp_path


def run(folder: Path, wanted: str, **names: object) -> dict[str, Any]:
    """Run the examples that a tool needs: the one that finds the files, and its own."""
    known: dict[str, Any] = {"FOLDER": str(folder), **names}
    (finding,) = [text for text in EXAMPLES if "manifest.json" in text]
    (own,) = [text for text in EXAMPLES if wanted in text]
    for text in (finding, own):
        exec(compile(text, wanted, "exec"), known)
    return known
