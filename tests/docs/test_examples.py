"""What the documentation shows is true: examples run, configurations load, named files exist."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import tomllib
from pathlib import Path

import aio_pika
import msgspec
import pika
import pytest

import recado
from recado.node.config import from_mapping
from recado.node.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def blocks(language: str, *pages: Path) -> list[object]:
    """The blocks of a language, each a parameter named after its page and number."""
    fence = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in pages
        for number, text in enumerate(fence.findall(page.read_text()))
    ]


STARTS_SPARK = "spark_session"
"""Pages with this word are run by the tests of their own that share a Spark: `tests/docs/test_*spark*.py`, …"""

ON_BOTH_BROKERS = "patterns"
"""This page is run by `tests/docs/test_patterns.py`."""


@pytest.mark.parametrize(
    "code",
    blocks(
        "python",
        *(
            page
            for page in PAGES
            if page.stem != ON_BOTH_BROKERS and STARTS_SPARK not in page.read_text()
        ),
    ),
)
def test_example(code: str) -> None:
    with recado.Broker() as broker:
        exec(compile(code, "example", "exec", dont_inherit=True), {"URL": broker.url})


@pytest.mark.parametrize("code", blocks("python", README))
def test_readme(code: str, recado_broker: recado.Broker) -> None:
    """It is shorter than a program: `await` stands by itself."""
    names: dict[str, object] = {"recado": recado, "pika": pika, "aio_pika": aio_pika}
    code = code.replace("127.0.0.1:5672", recado_broker.address)
    compiled = compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(compiled, names)
    if running is not None:
        asyncio.run(running)
    for name in [name for name in names if name.startswith("test_")]:
        names[name](recado_broker)  # type: ignore[operator]


@pytest.mark.parametrize("text", blocks("toml", README, *PAGES))
def test_configuration(text: str) -> None:
    from_mapping(tomllib.loads(text))


def test_every_setting_is_explained_with_its_default() -> None:
    rows = re.findall(
        r"^\| (`[a-z]+\..*?) \| (.+?) \| ", (ROOT / "docs/broker.md").read_text(), re.M
    )
    told: dict[str, str] = {}
    for keys, defaults in rows:
        names = re.findall(r"[^`, ]+", keys)
        values = [each.strip("`") for each in re.findall(r"`[^`]+`|[^`, ]+", defaults)]
        told.update(zip(names, values * len(names) if len(values) == 1 else values, strict=True))
    assert told == {
        f"{section}.{name}": as_told(value)
        for section, values in msgspec.to_builtins(Settings()).items()
        for name, value in values.items()
    }


def as_told(value: object) -> str:
    """A string without quotes, and `none` for nothing."""
    return value if isinstance(value, str) else "none" if value in (None, {}) else json.dumps(value)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
def test_every_test_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"(?<![\w/])(tests/[\w/]+\.py)\b", page.read_text())
    assert not [path for path in named if not (ROOT / path).is_file()]
