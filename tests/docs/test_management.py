"""The curl commands of docs/management.md succeed, in order, on a new node."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import Any

import recado
from tests.console.http import Api

PAGE = Path(__file__).resolve().parents[2] / "docs/management.md"


def commands() -> list[str]:
    """Return the commands of all blocks, each in one line."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


ASSIGNMENT = re.compile(r"(\w+)=\$\((curl .*) \| jq -r \.(\w+)\)")


def run(command: str, port: int) -> Any:
    """Run a curl command, and return the body of the answer."""
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
    return reply.body


def test_commands() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        variables: dict[str, str] = {}
        count = 0
        for command in commands():
            for name, value in variables.items():
                command = command.replace(f"${name}", value)
            assignment = ASSIGNMENT.fullmatch(command)
            if assignment is not None:
                name, curl, field = assignment.groups()
                variables[name] = run(curl, broker.management_port)[field]
            elif command.startswith("curl"):
                run(command, broker.management_port)
                count += 1
    assert count > 7
