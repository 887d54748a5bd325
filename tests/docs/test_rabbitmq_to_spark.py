"""The page docs/rabbitmq-to-spark.md, on RabbitMQ and on recado."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recado.client import Properties, connect_blocking
from workshop.peers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rabbitmq-to-spark.md"


def test_the_page(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.declare_queue("orders", durable=True)
        for number, price in enumerate((50, 150, 250)):
            body = b'{"price": %d}' % price
            channel.publish("", "orders", body, Properties(message_id=f"order {number}"))
        channel.wait_for_confirms()
        names: dict[str, object] = {"URL": server.url, "FOLDER": str(tmp_path)}
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(code, PAGE.name, "exec"), names)
        left = {
            queue: channel.declare_queue(queue, passive=True).message_count
            for queue in ("orders", "large", "large-once")
        }
        assert left == {"orders": 0, "large": 2, "large-once": 2 if server.name == "recado" else 4}
        first = channel.get("large", no_ack=True)
        assert first is not None
        assert first.properties.message_id in ("order 1", "order 2")
