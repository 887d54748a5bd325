"""Archives that a node runs by its configuration, and that a node without them loads nothing of feeds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pika
import pytest

import recado.feeds
from recado.feeds.archive.archive import Archive
from recado.node.archives import ArchiveStartError
from recado.node.config import ConfigError, from_mapping, load_config
from tests.feeds.io.loop import PATIENCE, in_the_loop, until
from workshop.time_limit import scale


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


def read_metrics(port: int | None, archive: str) -> dict[str, float]:
    """Return the metrics of an archive by name."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=scale(PATIENCE)) as response:
        lines = response.read().decode().splitlines()
    wanted = f'{{vhost="/",feed="quotes",archive="{archive}"}} '
    return {
        name: float(value)
        for name, found, value in (line.partition(wanted) for line in lines)
        if found
    }


@in_the_loop
async def test_metrics_tell_how_far_an_archive_is(tmp_path: Path) -> None:
    config = configured(tmp_path) | {"management": {"port": 0, "metrics_port": 0}}
    async with recado.Broker(config=config) as broker:

        async def read() -> dict[str, float]:
            return await asyncio.to_thread(read_metrics, broker.metrics_port, "archive-1")

        async with recado.feeds.connect(broker.url) as link:
            feed = link.feed("quotes")
            for _ in range(3):
                await feed.publish(b"x")
            await feed.flush()
        while (await read())["recado_archive_messages_total"] < 3:
            pass
        while (found := await read())["recado_feed_lag_packets"]:  # settled after the sync
            pass
        assert found == {
            "recado_feed_lag_packets": 0,
            "recado_archive_running": 1,
            "recado_archive_messages_total": 3,
            "recado_archive_lag_messages": 0,
            "recado_archive_lag_seconds": 0,
            "recado_archive_unsealed_messages": 3,
        }
        # Deleting its queue stops the archive, and what is published then waits nowhere.
        parameters = pika.URLParameters(broker.url)
        await asyncio.to_thread(delete_queue, parameters, "feed.quotes.archive.archive-1")
        while (found := await read())["recado_archive_running"]:
            pass
        assert found["recado_feed_lag_packets"] == 0


def delete_queue(parameters: pika.URLParameters, queue: str) -> None:
    with closing(pika.BlockingConnection(parameters)) as connection:
        connection.channel().queue_delete(queue)


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
