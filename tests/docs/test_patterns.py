"""The catalogue names exactly what `recado.patterns` has, and its examples run on both brokers."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import pytest

import recado.patterns
from tests.patterns.test_patterns_on_brokers import make_cases
from workshop.peers import Server

PAGE = (Path(__file__).resolve().parents[2] / "docs/patterns.md").read_text()
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
TABLE_ROWS = re.findall(r"^\| ([A-Z][\w -]+) \| (.+?) \|", PROSE, re.MULTILINE)
SECTIONS = re.findall(r"^##+ ([\w -]+)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE)
EXAMPLES = [
    pytest.param(code, id=f"{title}-{number}")
    for title, text in [("start", PAGE[: PAGE.index("\n## ")]), *SECTIONS]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State is stored in the current folder, unless a program says where."""
    monkeypatch.chdir(tmp_path)


FAMILIES = {
    "Integration styles": "File Transfer, Shared Database, Remote Procedure Invocation, Messaging",
    "Messaging systems": "Message Channel, Message, Pipes and Filters, Message Router, Message Translator,"
    " Message Endpoint",
    "Messaging channels": "Point-to-Point Channel, Publish-Subscribe Channel, Datatype Channel,"
    " Invalid Message Channel, Dead Letter Channel, Guaranteed Delivery, Channel Adapter, Messaging Bridge,"
    " Message Bus",
    "Message construction": "Command Message, Document Message, Event Message, Request-Reply, Return Address,"
    " Correlation Identifier, Message Sequence, Message Expiration, Format Indicator",
    "Message routing": "Content-Based Router, Message Filter, Dynamic Router, Recipient List, Splitter,"
    " Aggregator, Resequencer, Composed Message Processor, Scatter-Gather, Routing Slip, Process Manager,"
    " Message Broker",
    "Message transformation": "Envelope Wrapper, Content Enricher, Content Filter, Claim Check, Normalizer,"
    " Canonical Data Model",
    "Messaging endpoints": "Messaging Gateway, Messaging Mapper, Transactional Client, Polling Consumer,"
    " Event-Driven Consumer, Competing Consumers, Message Dispatcher, Selective Consumer, Durable Subscriber,"
    " Idempotent Receiver, Service Activator",
    "System management": "Control Bus, Detour, Wire Tap, Message History, Message Store, Smart Proxy,"
    " Test Message, Channel Purger",
}


def run(code: str, url: str) -> None:
    """Run an example, in which `await` may stand by itself."""
    names: dict[str, object] = {"URL": url}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = compile(code, "patterns.md", "exec", flags=flags, dont_inherit=True)
    running = eval(compiled, names)
    if running is not None:
        asyncio.run(asyncio.wait_for(running, 60))


@pytest.mark.parametrize(
    "code",
    [each for each in EXAMPLES if "(URL" in each.values[0]],  # type: ignore[operator]
)
def test_example_with_a_broker(code: str, server: Server) -> None:
    run(code, server.url)


@pytest.mark.parametrize(
    "code",
    [each for each in EXAMPLES if "(URL" not in each.values[0]],  # type: ignore[operator]
)
def test_example(code: str) -> None:
    run(code, "")


def test_every_exported_name_is_on_the_page() -> None:
    named = set(re.findall(r"`([A-Za-z_]+)(?:\(.*?\))?`", PROSE))
    assert sorted(set(recado.patterns.__all__) - named) == []


def test_every_name_of_the_catalogue_exists() -> None:
    for pattern, names in TABLE_ROWS:
        for name in re.findall(r"`([\w.]+)(?:\(.*?\))?`", names):
            found: object = recado.patterns
            for part in name.split("."):
                if found is recado.patterns.Messaging:
                    found = recado.patterns.Messaging("amqp://localhost")
                assert hasattr(found, part), f"{pattern}: {name}"
                found = getattr(found, part)


def test_the_catalogue_has_the_65_patterns_of_the_book() -> None:
    found = {
        title: re.findall(r"^### (.+)$", text, re.MULTILINE)
        for title, text in re.findall(
            r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE
        )
    }
    expected = {title: patterns.split(", ") for title, patterns in FAMILIES.items()}
    assert {title: found[title] for title in expected} == expected
    assert sum(map(len, expected.values())) == 65


def test_every_pattern_is_tested_on_both_brokers() -> None:
    """By an example with a URL, or by a case of `tests/patterns/test_patterns_on_brokers.py`."""
    cases = make_cases(lambda stem: stem)
    with_broker = {title for title, text in SECTIONS if "(URL" in text}
    left_out = {pattern for pattern, names in TABLE_ROWS if names == "left out"}
    patterns = {pattern for pattern, _ in TABLE_ROWS} - left_out - {"Message Broker"}  # it is one
    assert sorted(patterns - with_broker - cases.keys()) == []
    assert sorted(cases.keys() - patterns) == []


def test_every_pattern_has_a_section_with_a_diagram() -> None:
    patterns = [pattern for pattern, _ in TABLE_ROWS]
    sections = [(title, text) for title, text in SECTIONS if title in patterns]
    assert [title for title, _ in sections] == patterns
    assert [title for title, text in sections if not text.startswith("\n```\n")] == []
