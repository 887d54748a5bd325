"""Nothing that users write is lost or doubled, and its order is kept, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from recado.apps.chat.server import ServerOptions
from workshop import peers
from workshop.peers import Server

from .conftest import chat_in_thread
from .scene import Writer, run_scene

pytestmark = pytest.mark.searching

START_TIMEOUT_S = 60.0
SEED = 7


def start_broker(
    broker: str, folder: Path, port: int, stop: signal.Signals
) -> AbstractContextManager[Server]:
    if broker == "recado":
        return peers.recado(port=port, data=folder, stop=stop)
    return peers.rabbitmq(port=port, data=folder, stop=stop)


@pytest.mark.parametrize(
    ("broker", "stop"), [("recado", signal.SIGKILL), ("rabbitmq", signal.SIGTERM)]
)
def test_a_broker_that_restarts_while_users_write(
    broker: str, stop: signal.Signals, tmp_path: Path
) -> None:
    """Browsers lose their connections as well, at random."""
    (port,) = peers.free_ports(1)
    folder = tmp_path / "broker"
    folder.mkdir()
    with ExitStack() as stack:
        lives = stack.enter_context(ExitStack())
        server = lives.enter_context(start_broker(broker, folder, port, stop))
        options = ServerOptions(url=server.url, data=str(tmp_path / "chat"))
        running = stack.enter_context(chat_in_thread(options))

        async def restart() -> None:
            await asyncio.sleep(0.5)  # users write; no condition is waited for
            await asyncio.to_thread(lives.close)
            started = start_broker(broker, folder, port, stop)
            await asyncio.to_thread(lives.enter_context, started)

        writers = asyncio.run(run_scene(running.url, SEED, restart))
        assert all(writer.page.connection_count >= 3 for writer in writers)
        check_history(tmp_path / "chat/chat.sqlite", writers)


def test_a_chat_that_is_killed_while_users_write(tmp_path: Path) -> None:
    """Its own broker is killed with it; `--data` keeps everything that was answered, and pages send the rest again."""
    (port,) = peers.free_ports(1)
    with ExitStack() as lives:
        url = lives.enter_context(chat_process(tmp_path, port))

        async def restart() -> None:
            await asyncio.sleep(0.5)  # users write; no condition is waited for
            await asyncio.to_thread(lives.close)
            await asyncio.to_thread(lives.enter_context, chat_process(tmp_path, port))

        writers = asyncio.run(run_scene(url, SEED, restart))
        assert all(writer.page.connection_count >= 2 for writer in writers)
        check_history(tmp_path / "chat.sqlite", writers)


@contextmanager
def chat_process(data: Path, port: int) -> Iterator[str]:
    """Run `recado chat` until it is killed."""
    command = [sys.executable, "-m", "recado", "chat", "--port", str(port), "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found.group()
        finally:
            process.kill()


def check_history(database: Path, writers: list[Writer]) -> None:
    """The read model has each message once, and no publication twice."""
    connection = sqlite3.connect(database)
    try:
        texts = [text for (text,) in connection.execute("select text from messages")]
    finally:
        connection.close()
    written = {text for writer in writers for own in writer.written.values() for text in own}
    assert sorted(texts) == sorted(written)
