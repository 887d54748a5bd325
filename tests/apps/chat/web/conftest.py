"""One Chromium and one chat per module, and people who use its pages."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from recado.apps.chat.server import RunningChat, ServerOptions
from workshop.chromium import launched
from workshop.time_limit import scale

from ..conftest import chat_in_thread

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

TIMEOUT_MS = 30_000
POLL_MS = 20

LOST_CONNECTION = r"WebSocket connection to .* failed|ERR_(INTERNET_DISCONNECTED|CONNECTION|EMPTY)"
"""What Chromium itself logs when a test takes the network away."""


class Person:
    """A user at a page of the chat."""

    def __init__(self, page: Page, name: str) -> None:
        self.page = page
        self.name = name

    def join(self, room: str) -> None:
        self.page.get_by_role("combobox", name="Find or join").fill(room)
        self.page.keyboard.press("Enter")
        self.page.get_by_role("heading", name=room, exact=True, level=1).wait_for()
        self.field.wait_for()

    @property
    def field(self) -> Locator:
        return self.page.get_by_label(re.compile("^Message to"))

    def write(self, text: str) -> None:
        self.field.fill(text)
        self.field.press("Enter")

    def message(self, text: str) -> Locator:
        """The message that has this text, alone."""
        wanted = re.compile(rf"^{re.escape(text)}(\s*edited)?$")
        found = self.page.locator(".text", has_text=wanted)
        return self.page.get_by_role("article").filter(has=found)

    def see(self, text: str) -> Locator:
        """Wait for a message that is sent."""
        found = self.message(text)
        self.page.locator(".message.sent").and_(found).wait_for()
        return found

    def reply(self, to: str, text: str) -> None:
        self.message(to).get_by_role("button", name=re.compile("^Reply.* to ")).click()
        self.page.get_by_text("Reply to").wait_for()
        self.write(text)

    def open(self, title: str) -> None:
        self.entry(title).click()
        self.page.get_by_role("heading", name=title, level=1).wait_for()

    def entry(self, title: str) -> Locator:
        """The conversation in the list."""
        own = self.page.locator(".entry-title bdi", has_text=re.compile(f"^{re.escape(title)}$"))
        return self.page.locator(".entry").filter(has=own)

    def texts(self) -> list[str]:
        """The texts of all messages that are elements, in their order."""
        found: list[str] = self.page.locator(".message .text").all_inner_texts()
        return [each.removesuffix("edited").strip() for each in found]

    def wait_until(self, expression: str, argument: Any = None) -> None:
        """Evaluate an expression until it is true; the policy of the page forbids `wait_for_function`."""
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while not self.page.evaluate(expression, argument):
            assert time.monotonic() < deadline, f"never true: {expression}"
            self.page.wait_for_timeout(POLL_MS)

    def second_device(self, open_page: OpenPage) -> Person:
        """Open the address for another device in a new profile."""
        self.page.get_by_role("button", name="Settings and help").click()
        self.page.get_by_role("button", name="Use on another device").click()
        address = self.page.locator(".link-box code").inner_text()
        self.page.keyboard.press("Escape")
        other = Person(open_page(address), self.name)
        other.page.get_by_role("button", name="Settings and help").wait_for()
        return other


OpenPage = Callable[..., "Page"]
SignIn = Callable[..., Person]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed after each module: while Playwright runs, its thread cannot run another event loop."""
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def chat() -> Iterator[RunningChat]:
    with chat_in_thread(ServerOptions()) as running:
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open pages in a new profile each; at the end, none may have logged an error or asked another host."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_page(address: str, *, expected: str = "\0", **options: Any) -> Page:
        """`expected` is a pattern of the errors that the test provokes."""
        defaults = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**defaults, **options})
        contexts.append(context)
        context.set_default_timeout(scale(TIMEOUT_MS))
        page = context.new_page()

        def note(text: str) -> None:
            if not re.search(expected, text):
                problems.append(text)

        host = address.split("/")[2]
        page.on("console", lambda each: note(each.text) if each.type == "error" else None)
        page.on("pageerror", lambda each: note(str(each)))
        page.on("request", lambda each: None if f"//{host}/" in each.url else note(each.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def sign_in(open_page: OpenPage, chat: RunningChat) -> SignIn:
    """Open the page, choose a name, and join rooms."""

    def sign_in(stem: str, *rooms: str, url: str = "", **options: Any) -> Person:
        name = f"{stem} {secrets.token_hex(2)}"  # equal names are shown with a part of the id
        page = open_page(url or chat.url, **options)
        page.get_by_label("Name").fill(name)
        page.get_by_label("Name").press("Enter")
        page.get_by_role("heading", name=re.compile("^(Welcome|This is)")).first.wait_for()
        person = Person(page, name)
        for room in rooms:
            person.join(room)
        return person

    return sign_in


@pytest.fixture
def room() -> str:
    """The name of a room that no other test uses."""
    return f"room {secrets.token_hex(3)}"
