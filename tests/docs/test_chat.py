"""The page docs/chat.md: its programs make a searchable table of what users have written."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recado.apps.chat.server import ServerOptions
from tests.apps.chat.browser import Browser
from tests.apps.chat.conftest import chat_in_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "chat.md"


def test_the_page(spark: SparkSession, tmp_path: Path) -> None:
    async def talk(url: str) -> None:
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", ("kitchen",))
            await bob.sign_in("Bob", ("kitchen",))
            await ana.send("room:kitchen", "Coffee tomorrow?")
            await bob.send("room:kitchen", "coffee, yes, but not tomorrow")
            regretted = await bob.send("room:kitchen", "tea is better than coffee")
            await bob.say("delete", client_id="regret", id=regretted["id"])
            await bob.expect("sent")

    with chat_in_thread(ServerOptions(data=str(tmp_path))) as running:
        asyncio.run(talk(running.url))
        names: dict[str, object] = {"DATA": str(tmp_path)}
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(code, PAGE.name, "exec"), names)  # while the chat runs
    found, per_user = names["found"], names["per_user"]
    assert [(row["who"], row["text"]) for row in found.collect()] == [  # type: ignore[attr-defined]
        ("Bob", "coffee, yes, but not tomorrow"),
        ("Ana", "Coffee tomorrow?"),
    ]
    counts = {row["user_name"]: row["count"] for row in per_user.collect()}  # type: ignore[attr-defined]
    assert counts == {"Ana": 1, "Bob": 1}
