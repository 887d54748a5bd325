"""Debian's amqp-tools: the command line programs of librabbitmq, the client library in C."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from workshop import system
from workshop.peers import Server
from workshop.time_limit import scale

from .traffic import PATIENCE

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tool(server: Server) -> Tool:
    """Runs `amqp-NAME` against the server."""
    system.need(system.AMQP_TOOLS)

    def run(name: str, *arguments: str, feed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [f"amqp-{name}", f"--url={server.url}", *arguments],
            input=feed,
            capture_output=True,
            text=True,
            timeout=scale(PATIENCE),
            check=False,
        )

    return run


@pytest.fixture
def queue(tool: Tool, name: Callable[[str], str]) -> Iterator[str]:
    """A queue declared and deleted by the tools."""
    queue = name("tools")
    declared = tool("declare-queue", f"--queue={queue}")
    assert (declared.returncode, declared.stdout.strip()) == (0, queue), declared.stderr
    yield queue
    deleted = tool("delete-queue", f"--queue={queue}")
    assert deleted.returncode == 0, deleted.stderr


def test_publish_and_get(tool: Tool, queue: str) -> None:
    sent = tool("publish", f"--routing-key={queue}", "--body=by the command line", "--persistent")
    assert sent.returncode == 0, sent.stderr
    found = tool("get", f"--queue={queue}")
    assert (found.returncode, found.stdout) == (0, "by the command line")
    empty = tool("get", f"--queue={queue}")
    assert (empty.returncode, empty.stdout) == (2, "")


def test_a_body_from_standard_input_of_many_frames(tool: Tool, queue: str) -> None:
    body = "line of a long text\n" * 20_000
    sent = tool("publish", f"--routing-key={queue}", feed=body)
    assert sent.returncode == 0, sent.stderr
    assert tool("get", f"--queue={queue}").stdout == body


def test_every_line_a_message_and_a_program_for_each(tool: Tool, queue: str) -> None:
    lines = [f"line {number}\n" for number in range(10)]
    sent = tool("publish", f"--routing-key={queue}", "--line-buffered", feed="".join(lines))
    assert sent.returncode == 0, sent.stderr
    consumed = tool("consume", f"--queue={queue}", "--count=10", "--prefetch-count=2", "cat")
    assert consumed.returncode == 0, consumed.stderr
    assert consumed.stdout == "".join(lines)


def test_publishing_to_an_exchange_with_properties_and_headers(tool: Tool, queue: str) -> None:
    sent = tool(
        "publish",
        "--exchange=amq.direct",
        f"--routing-key={queue}",
        "--content-type=text/plain",
        "--header=kind: test",
        "--body=nobody is bound",
    )
    assert sent.returncode == 0, sent.stderr
    assert tool("get", f"--queue={queue}").returncode == 2


def test_errors_are_told_with_their_code(tool: Tool, name: Callable[[str], str]) -> None:
    missing = tool("get", f"--queue={name('missing')}")
    assert missing.returncode == 1
    assert "404" in missing.stderr
    assert "NOT_FOUND" in missing.stderr


def test_a_wrong_password_is_refused(server: Server, name: Callable[[str], str]) -> None:
    url = server.url.replace("guest:guest", "guest:wrong")
    command = ["amqp-declare-queue", f"--url={url}", f"--queue={name('refused')}"]
    refused = subprocess.run(
        command, capture_output=True, text=True, timeout=scale(PATIENCE), check=False
    )
    assert refused.returncode == 1
    assert "login was refused" in refused.stderr.lower()
