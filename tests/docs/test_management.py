"""The curl commands of docs/management.md succeed, in order, on a new node."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import recado
from tests.console.http import Api

PAGE = Path(__file__).resolve().parents[2] / "docs/management.md"


def commands() -> list[str]:
    """Return the commands of all blocks, each in one line."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def run(command: str, port: int) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-u", dest="user")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-d", dest="body")
    parser.add_argument("-o", dest="file")
    parser.add_argument("-N", dest="endless", action="store_true")
    parser.add_argument("url")
    arguments = parser.parse_args(shlex.split(command)[1:])
    user, _, password = arguments.user.partition(":")
    body = None if arguments.body is None else arguments.body.encode()
    method = arguments.method or ("GET" if body is None else "POST")
    if arguments.endless:
        method = "HEAD"  # of an answer without an end
    path = arguments.url.replace("$api", "/api").replace("http://127.0.0.1:15672", "")
    reply = Api(port, user, password).request(method, path, body)
    assert reply.status < 300, (command, reply)
    assert reply.body != [], command


def test_commands() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        found = [command for command in commands() if command.startswith("curl")]
        for command in found:
            run(command, broker.management_port)
    assert len(found) > 7
