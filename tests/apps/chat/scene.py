"""Users who write while something fails, and a judge of what their pages show in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import NamedTuple

from .browser import Browser
from .page import Page

ROOMS = ("tea", "coffee")
USERS = ("Ana", "Bob", "Cleo")
MESSAGES_COUNT = 20
"""Messages of each page."""
PAUSE_MAX_S = 0.08
DROPS_COUNT = 3
"""Lost connections of each page."""
TIMEOUT_S = 90.0

Disturb = Callable[[], Awaitable[object]]


class Place(NamedTuple):
    """A conversation as a page names it, and as all do."""

    conversation: str
    key: str


class Writer:
    """A page, and what its user has written in each conversation."""

    def __init__(self, page: Page, places: list[Place]) -> None:
        self.page = page
        self.places = places
        self.written: dict[str, list[str]] = {place.key: [] for place in places}

    async def write(self, random: Random) -> None:
        drops = set(random.sample(range(MESSAGES_COUNT), DROPS_COUNT))
        for number in range(MESSAGES_COUNT):
            place = random.choice(self.places)
            text = f"{self.page.name} says {number}"
            self.written[place.key].append(text)
            self.page.write(place.conversation, text)
            if number in drops:
                self.page.drop()
            await asyncio.sleep(random.uniform(0, PAUSE_MAX_S))


async def run_scene(url: str, seed: int, disturb: Disturb) -> list[Writer]:
    """Let users write in rooms and in private while `disturb` runs; raise unless every page is right.

    The first user writes on two devices.
    """
    random = Random(seed)
    async with AsyncExitStack() as stack, asyncio.timeout(TIMEOUT_S):
        browsers = [await stack.enter_async_context(Browser(url)) for _ in USERS]
        for browser, name in zip(browsers, USERS, strict=True):
            await browser.sign_in(name, ROOMS)
        await browsers[0].open(browsers[1].id)
        await browsers[1].open(browsers[0].id)
        browsers.append(await stack.enter_async_context(await browsers[0].second_device()))
        ana, bob, cleo = (browser.id for browser in browsers[:3])
        partners = {ana: bob, bob: ana, cleo: None}
        writers = []
        for index, browser in enumerate(browsers):
            await browser.socket.close()
            page = Page(url, browser.cookies, f"page {index}")
            stack.push_async_callback(page.close)
            places = [Place(f"room:{room}", room) for room in ROOMS]
            partner = partners[browser.id]
            if partner is not None:
                places.append(Place(f"user:{partner}", "private"))
            writers.append(Writer(page, places))
        seeds = [random.random() for _ in writers]
        writing = [each.write(Random(seed)) for each, seed in zip(writers, seeds, strict=True)]
        await asyncio.gather(disturb(), *writing)
        for writer in writers:
            await writer.page.until(partial(is_complete, writer, writers))
        judge(writers)
        return writers


def is_complete(writer: Writer, writers: list[Writer]) -> bool:
    """Whether everything that the user of a page has written is answered, and the page shows all of it."""
    return not any(writer.page.outbox.values()) and all(
        len(writer.page.texts(place.conversation)) >= len(everything(place.key, writers))
        for place in writer.places
    )


def sources(key: str, writers: list[Writer]) -> list[list[str]]:
    """Return what was written in a conversation, by page."""
    return [each.written[key] for each in writers if key in each.written]


def everything(key: str, writers: list[Writer]) -> list[str]:
    return [text for source in sources(key, writers) for text in source]


def judge(writers: list[Writer]) -> None:
    """Every page shows every message once, in one order, and each writer's in the order of writing."""
    orders: dict[str, list[str]] = {}
    for writer in writers:
        page = writer.page
        assert not page.faults, (page.name, page.faults)
        for place in writer.places:
            shown = page.texts(place.conversation)
            expected = everything(place.key, writers)
            assert sorted(shown) == sorted(expected), (page.name, place.key)
            for source in sources(place.key, writers):
                own = set(source)
                assert [text for text in shown if text in own] == source, (page.name, place.key)
            assert shown == orders.setdefault(place.key, shown), "all pages have one order"
