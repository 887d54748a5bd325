"""The chat as a program: a broker, the archive of the history, the chat, and its web site."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import recado
import recado.feeds

from .bots import Demo
from .broker_link import BrokerLink
from .chat import Chat, ChatSettings
from .history import ChatHistory
from .listener import listen
from .names import FEED_NAME
from .site import ChatSite
from .talk import LOBBY

ARCHIVE_NAME: Final = "chat"
DATABASE_FILE: Final = "chat.sqlite"
ARCHIVE_FOLDER: Final = "archive"
BROKER_FOLDER: Final = "broker"

log = logging.getLogger("recado.chat")


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the chat runs. Without `url`, it has a broker of its own; without `data`, nothing survives it."""

    url: str | None = None
    data: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    demo: bool = False
    """Whether bots talk, and new users are in their lobby."""
    demo_pace: float = 1.0
    """Multiplies the pauses of the bots."""


class RunningChat(NamedTuple):
    """A chat that accepts browsers."""

    chat: Chat
    url: str
    """The address of the page."""
    broker_url: str
    data: Path
    failure: asyncio.Future[Exception]
    """Completes with the reason if the chat cannot continue."""


@asynccontextmanager
async def run_chat(options: ServerOptions) -> AsyncIterator[RunningChat]:
    """Run a chat while the block lasts. Raises `ClientError`, `FeedError`, `OSError`, and `ValueError`."""
    async with AsyncExitStack() as stack:
        data = options.data or stack.enter_context(tempfile.TemporaryDirectory("-recado-chat"))
        folder = Path(data)
        await asyncio.to_thread(partial(folder.mkdir, parents=True, exist_ok=True))
        broker_url = options.url
        if broker_url is None:
            broker_data = folder / BROKER_FOLDER if options.data is not None else None
            broker = recado.Broker(data=broker_data)
            broker_url = (await stack.enter_async_context(broker)).url
        rooms = (LOBBY,) if options.demo else ()
        chat = Chat(folder / DATABASE_FILE, ChatSettings(welcome_rooms=rooms))
        stack.push_async_callback(chat.close)
        link = BrokerLink(
            broker_url,
            on_state=chat.handle_broker_state,
            on_unrouted=chat.repair_room,
            on_publications_lost=chat.catch_up_all,
        )
        await stack.enter_async_context(link)
        connection = await stack.enter_async_context(
            recado.feeds.connect(broker_url, reconnect_timeout=None)
        )
        await stack.enter_async_context(
            connection.archive(FEED_NAME, folder / ARCHIVE_FOLDER, name=ARCHIVE_NAME)
        )
        chat.start(link, partial(ChatHistory, connection.feed(FEED_NAME)))
        failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        tasks = [
            asyncio.create_task(_supervise(work, failure))
            for work in (chat.history.run(), chat.route())
        ]
        stack.push_async_callback(_cancel, tasks)
        await _wait_for(chat.history.joined.wait(), failure)
        if options.demo:
            demo = Demo(chat, pace=options.demo_pace)
            await _wait_for(demo.prepare(), failure)
            talking = asyncio.create_task(_supervise(demo.run(), failure))
            stack.push_async_callback(_cancel, [talking])
        site = ChatSite(chat)
        url = await stack.enter_async_context(listen(site.application, options.host, options.port))
        yield RunningChat(chat, url, broker_url, folder, failure)


async def _supervise(work: Coroutine[Any, Any, None], failure: asyncio.Future[Exception]) -> None:
    try:
        await work
    except Exception as error:
        log.error("chat stopped", exc_info=error)
        if not failure.done():
            failure.set_result(error)


async def _wait_for(work: Coroutine[Any, Any, Any], failure: asyncio.Future[Exception]) -> None:
    """Wait for work that depends on a task; raise what the task has failed with."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, failure}, return_when=asyncio.FIRST_COMPLETED)
    if failure.done():
        task.cancel()
        raise failure.result()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
