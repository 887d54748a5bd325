"""`list` and `show` of feeds, actor systems and pipelines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pika
import pytest

import recado
from recado.cli import main
from recado.status.record import STATUS_EXCHANGE, encode_record, routing_key
from tests.console.status_records import actors_status, pipeline_status
from workshop.time_limit import scale

from .conftest import Run


@pytest.fixture
def broker() -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0, "status": True}}) as running:
        with pika.BlockingConnection(pika.URLParameters(running.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("feed.quotes", "topic", durable=True)
            channel.exchange_declare("feed.quotes.archive", "direct", durable=True)
            channel.confirm_delivery()
            for record in (actors_status("ex/change"), pipeline_status()):
                channel.basic_publish(STATUS_EXCHANGE, routing_key(record), encode_record(record))
        node = running._running
        assert node is not None
        assert node.management is not None
        collector = node.management.console.collector
        assert collector is not None
        done = asyncio.run_coroutine_threadsafe(collector.collect(), node.server.loop)
        done.result(scale(30.0))
        yield running


def test_lists_and_objects(recado_on: Run) -> None:
    (row,) = recado_on("feed", "list", "--vhost", "/").rows
    assert row[:4] == ["quotes", "/", "0", "0"]
    assert recado_on("feed", "show", "quotes", "--json").json["archives"] is None
    (row,) = recado_on("actors", "list").rows
    assert row[:4] == ["ex/change", "/", "running", "false"]
    assert recado_on("actors", "show", "ex/change", "--json").json["actors"] == []
    (row,) = recado_on("pipeline", "list").rows
    assert row[:3] == ["bars", "/", "running"]
    assert recado_on("pipeline", "show", "bars", "--json").json["lag"] == 7
    for command in ("feed", "actors", "pipeline"):
        assert recado_on(command, "show", "none").status == 3
        assert recado_on(command, "list", "--json").json[0]["vhost"] == "/"


def test_names_are_completed(recado_on: Run) -> None:
    assert recado_on("complete", "feed", "show", "").out == "quotes\n"
    assert recado_on("complete", "actors", "show", "").out == "ex/change\n"
    assert "show" in recado_on("complete", "pipeline", "").out.split()


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["actors", "list", "--help"])
    assert "recado actors list" in capsys.readouterr().out
