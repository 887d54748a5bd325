"""Archives that a node runs by its configuration, and that a node without them loads nothing of feeds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import recado.feeds
from recado.feeds.archive.archive import Archive
from recado.node.archives import ArchiveStartError
from recado.node.config import ConfigError, from_mapping, load_config
from tests.feeds.io.loop import in_the_loop, until


def configured(data: Path, **archive: object) -> dict[str, dict[str, object]]:
    return {
        "node": {"data": str(data)},
        "feeds": {"archives": {"archive-1": {"feed": "quotes", **archive}}},
    }


def has_rows(folder: Path, count: int) -> bool:
    with Archive.open(folder) as archive:
        return archive.end_offset == count


@in_the_loop
async def test_an_archive_beside_the_broker(tmp_path: Path) -> None:
    folder = tmp_path / "feeds" / "archive-1"
    for life in (1, 2):
        async with recado.Broker(config=configured(tmp_path)) as broker:
            async with recado.feeds.connect(broker.url) as link:
                feed = link.feed("quotes")
                await feed.publish(b"x")
                await feed.flush()
            await until(partial(has_rows, folder, life))


@in_the_loop
async def test_one_that_cannot_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "manifest.json").write_text("{}")
    settings = configured(tmp_path / "data", folder=str(tmp_path / "archive"))
    with pytest.raises(ArchiveStartError, match=r"feeds\.archives\.archive-1: .*manifest\.json"):
        await recado.Broker(config=settings).__aenter__()
    settings = configured(tmp_path / "data", stack="DISPATCH:FIFO:AMQP")
    with pytest.raises(ArchiveStartError, match="FIFO needs NAK"):
        await recado.Broker(config=settings).__aenter__()
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"node": {}}, "feeds.archives.archive-1 .*needs a folder, or the node a data folder"),
        ({"feeds": {"archives": {"a": {}}}}, "feeds.archives.a.*feed"),
        ({"feeds": {"archives": {"a": {"feed": "q", "vhost": "/x"}}}}, "not in access.vhosts"),
        ({"feeds": {"user": "ana", "archives": {"a": {"feed": "q"}}}}, "feeds.user .*must be one"),
        ({"feeds": {"archives": {"a": {"feed": "q", "max_share": 2}}}}, "max_share"),
    ],
)
def test_settings_that_do_not_fit(change: dict[str, object], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        from_mapping({**configured(tmp_path), **change})


def test_a_folder_is_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "recado.toml"
    file.write_text('[feeds.archives.a]\nfeed = "quotes"\nfolder = "kept"\n')
    assert load_config(file=file).settings.feeds.archives["a"].folder == str(tmp_path / "kept")


def test_a_node_without_archives_loads_nothing_of_feeds() -> None:
    code = """
import asyncio, sys, recado
async def main():
    async with recado.Broker():
        pass
asyncio.run(main())
loaded = [n for n in sys.modules if n.startswith(("recado.feeds", "recado.client", "pyarrow"))]
print(*loaded)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
