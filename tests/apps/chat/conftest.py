"""A chat for all tests that do it no harm, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from recado.apps.chat.server import RunningChat, ServerOptions, run_chat

START_TIMEOUT_S = 60.0


@contextmanager
def chat_in_thread(options: ServerOptions) -> Iterator[RunningChat]:
    """Run a chat while the block lasts; tests speak to it as browsers do."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="chat", daemon=True)
    thread.start()
    context = run_chat(options)
    try:
        entering = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop)
        running = entering.result(START_TIMEOUT_S)
        try:
            yield running
        finally:
            leaving = asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop)
            leaving.result(START_TIMEOUT_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def running_chat() -> Iterator[RunningChat]:
    with chat_in_thread(ServerOptions()) as running:
        yield running


@pytest.fixture(scope="session")
def url(running_chat: RunningChat) -> str:
    return running_chat.url


@pytest.fixture
def room() -> Callable[[], str]:
    """Names of rooms that no other test uses."""
    return lambda: f"room-{secrets.token_hex(4)}"
