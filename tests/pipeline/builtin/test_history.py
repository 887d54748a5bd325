"""A history is searched by words in any form and by time, against a search in Python."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

import recado.feeds
from recado.feeds.archive.archive import Archive
from recado.pipeline.builtin.history import build_history, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SAID = [
    "Olá, o CARRO novo do João chegou",
    "o carro velho do Joao também",
    "nothing of that",
    "Caminhão, não carro; ação e reação",
    "carros são muitos",
    "",
    "数字 carro 42",
    '{"kind":"trade","symbol":"PETR4","price":38.2}',
]
NO_TEXT = [b"\xff\xfe\x00carro", b"carro\x00"]


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a feed on which a wire tap publishes what it sees enter a queue."""
    data = tmp_path_factory.mktemp("tapped")
    config = {"feeds": {"archives": {"chat": {"feed": "chat", "seal_rows": 4}}}}
    with recado.Broker(data=data, config=config) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("chat")
        seen: list[tuple[str, bytes]] = []
        channel.basic_consume(
            "chat",
            lambda _, method, __, body: seen.append((method.routing_key, body)),
            auto_ack=True,
            arguments={"x-wire-tap": True},
        )
        for body in [*(each.encode() for each in SAID), *NO_TEXT]:
            channel.basic_publish("", "chat", body)
        while len(seen) < len(SAID) + len(NO_TEXT):
            connection.process_data_events(time_limit=1)
        connection.close()
        with recado.feeds.connect_blocking(broker.url) as link:
            feed = link.feed("chat")
            for key, body in seen:
                feed.publish(body, key=key, headers={"room": "sala", "length": len(body)})
            feed.flush()
    return data / "feeds" / "chat"


def words_in(text: str) -> set[str]:
    """By another way than the pipeline's: what Unicode takes apart, without the marks."""
    apart = unicodedata.normalize("NFD", text.lower())
    plain = "".join(each for each in apart if not unicodedata.combining(each))
    return {each for each in re.findall(r"\w+", plain) if len(each) > 1}


def test_history_is_searched(spark: SparkSession, tapped: Path, tmp_path: Path) -> None:
    rows = spark.read.format("recado").option("path", str(tapped)).load()
    build_history(rows).write.partitionBy("date").parquet(str(tmp_path / "history"))
    table = spark.read.parquet(str(tmp_path / "history")).cache()
    assert table.count() == len(SAID) + len(NO_TEXT)
    kept = {row["offset"]: row for row in table.collect()}
    assert [kept[offset]["text"] for offset in sorted(kept)] == [*SAID, None, None]
    assert kept[0]["headers"]["room"] == "sala"
    for asked in ("carro", "JOÃO carro", "acao", "petr4 trade", "42", "caminhao nao", "nobody"):
        found = [row["text"] for row in search(table, asked).collect()]
        expected = [text for text in SAID if words_in(asked) <= words_in(text)]
        assert found == expected[::-1], asked
    assert search(table, "a, é!").count() == 0  # no word that is long enough
    with Archive.open(tapped) as archive:
        times = [message.time for message in archive.messages()]
    middle = times[3].isoformat()
    late = search(table, "carro", since=middle).collect()
    early = search(table, "carro", until=middle).collect()
    assert {row["offset"] for row in late} == {
        each for each in (0, 1, 3, 6) if times[each] >= times[3]
    }
    assert {row["offset"] for row in early} == {
        each for each in (0, 1, 3, 6) if times[each] < times[3]
    }
    table.unpersist()
