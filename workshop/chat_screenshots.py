"""Photograph the views of the chat, in both themes and sizes: `python -m workshop.chat_screenshots`.

The pictures are in docs/chat/, reduced as those of the console; `docs/chat/findings.md` lists what looking at them has
found. With names of views as arguments, only these are photographed.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from PIL import Image

from recado.apps.chat.server import RunningChat, ServerOptions, run_chat

from .chromium import launched
from .screenshots import SIZES, reduce_colours

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs/chat"
SETTLE_MS: Final = 300
REFUSED: Final = "\x1f"  # the server refuses it: white space
EXPLANATION: Final = (
    "A consumer acknowledged the same delivery twice, so the channel was closed with 406 PRECONDITION_FAILED. "
    "The retry then took the message from the dead-letter queue, and everything began again.\n\n"
    "Details: https://www.rabbitmq.com/docs/confirms#consumer-acks-double-acking"
)
TALK: Final = (
    ("Ana Rusu", "Good morning! The nightly build of the broker is green again.", None),
    ("Ion Popescu", "Nice. What was it in the end?", "Good morning!"),
    (
        "Maria Ciobanu",
        "I move the weekly call to Thursday 15:00. Is that all right for everybody?",
        None,
    ),
    (
        "Ana Rusu",
        EXPLANATION,
        "Nice. What",
    ),
    ("Ana Rusu", "Fixed in 7c1b2ea.", None),
    ("Vlad Munteanu", "How do I see the bindings of an exchange without the console?", None),
    ("Ion Popescu", "recado bindings list", "How do I see"),
    ("Vlad Munteanu", "Thank you!", "recado status"),
    (
        "Maria Ciobanu",
        "<b>Thursday</b> it is then, and <script>alert('this')</script> stays text.",
        None,
    ),
)


class _Stage:
    """A chat with people in it."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self.people: dict[str, Page] = {}

    def enter(self, name: str) -> Page:
        page = self._browser.new_context(reduced_motion="reduce", locale="en-GB").new_page()
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(self._url)
        page.get_by_label("Name").fill(name)
        self.people[name] = page
        return page

    def join(self, name: str, room: str) -> None:
        page = self.people[name]
        page.get_by_role("combobox", name="Find or join").fill(room)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name=room, exact=True, level=1).wait_for()

    def write(self, name: str, text: str, answered: str | None = None) -> None:
        page = self.people[name]
        if answered:
            original = page.get_by_role("article").filter(has_text=answered).first
            original.get_by_role("button", name=re.compile("^Reply.* to ")).click()
        field = page.get_by_label(re.compile("^Message to"))
        field.fill(text)
        field.press("Enter")
        first_line = text.split("\n")[0]
        page.locator(".message.sent", has_text=first_line).last.wait_for()


def main(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _chat() as chat, launched() as browser:
        for name, page in _views(_Stage(browser, chat.url)):
            if not names or name in names:
                _photograph(page, name)


def _views(stage: _Stage) -> Iterator[tuple[str, Page]]:
    """Show one view after the other."""
    page = stage.enter("Victor Lungu")
    page.get_by_label("Name").fill("")
    yield "sign-in", page
    page.get_by_label("Name").fill("Victor Lungu")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Welcome").wait_for()
    for name in dict.fromkeys(name for name, _, _ in TALK):
        stage.enter(name).keyboard.press("Enter")
        stage.people[name].get_by_role("heading", name="Welcome").wait_for()
        for room in ("releases", "help", "general"):
            stage.join(name, room)
    page.get_by_role("button", name="Join general").wait_for()
    yield "no-room", page
    page.get_by_role("button", name="Join general").click()
    page.get_by_text("This is the beginning").wait_for()
    yield "empty-room", page
    for name, text, answered in TALK:
        stage.write(name, text, answered)
    stage.join("Victor Lungu", "help")
    stage.write("Ion Popescu", "Has anybody seen Victor?")
    stage.write("Maria Ciobanu", "@Victor Lungu we need you here")
    stage.join("Ana Rusu", "help")
    stage.write("Ana Rusu", "How do I leave a room?")
    page.locator(".count", has_text="2").wait_for()
    page.get_by_role("link", name=re.compile("^general")).click()
    page.get_by_text("we need you").last.wait_for()
    yield "new-messages", page
    stage.write("Victor Lungu", "Here I am. What is it about?", "we need you")
    stage.people["Ion Popescu"].get_by_label(re.compile("^Message to")).press_sequentially("The br")
    page.get_by_text("is typing").wait_for()
    article = page.get_by_role("article").filter(has_text="Here I am").last
    article.hover()
    yield "room", page
    page.mouse.move(700, 20)
    article.get_by_role("button", name="Reply in thread").click()
    page.get_by_label(re.compile("^Message to")).press_sequentially("See :roc")
    page.get_by_role("option").first.wait_for()
    yield "thread", page
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.get_by_label(re.compile("^Message to")).fill("")
    page.get_by_role("button", name="Members").click()
    yield "members", page
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_label("Search messages").fill("the br")
    page.locator(".result").first.wait_for()
    yield "search", page
    page.get_by_role("button", name="AMQP traffic").click()
    stage.write("Victor Lungu", "What happens when I send this?")
    page.get_by_text("basic.ack confirm").first.wait_for()
    yield "drawer", page
    page.get_by_role("link", name="queue.bind").first.click()
    page.get_by_role("heading", name="Bind a queue").wait_for()
    yield "explanation", page
    page.get_by_role("link", name="Back to the conversation").click()
    page.get_by_role("button", name="Close AMQP traffic").click()
    page.get_by_label(re.compile("^Message to")).fill(REFUSED)
    page.keyboard.press("Enter")
    page.get_by_text("Not sent.").wait_for()
    page.get_by_label(re.compile("^Message to")).fill("This one waits for the one before it.")
    page.keyboard.press("Enter")
    yield "failed", page
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("button", name="Ana Rusu", exact=True).first.click()
    page.get_by_role("heading", name="Ana Rusu", level=1).wait_for()
    yield "empty-private", page
    stage.write("Victor Lungu", "Do you have a minute for the retry?")
    ana = stage.people["Ana Rusu"]
    ana.get_by_role("link", name=re.compile("^Victor Lungu")).click()
    stage.write("Ana Rusu", "Sure. I am at the coffee machine.", "Do you have")
    page.get_by_text("coffee machine").last.wait_for()
    yield "private", page
    page.get_by_role("button", name="Settings and help").click()
    yield "settings", page
    page.get_by_role("button", name="Use on another device").click()
    page.locator(".link-box").wait_for()
    yield "another-device", page
    page.keyboard.press("Escape")
    page.get_by_role("button", name="All rooms").click()
    yield "rooms", page
    page.keyboard.press("Escape")
    page.context.set_offline(True)
    page.get_by_label(re.compile("^Message to")).fill("I will send this later.")
    page.keyboard.press("Enter")
    page.get_by_text("You are offline.").wait_for()
    yield "offline", page
    page.context.set_offline(False)
    page.locator(".message.sent", has_text="I will send this later.").wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("link", name="Back to the list").click()
    page.get_by_role("heading", name="Rooms").wait_for()
    yield "list", page


@contextmanager
def _chat() -> Iterator[RunningChat]:
    """Run a chat in a thread, because Playwright uses this one."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = run_chat(ServerOptions())
    running = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
    try:
        yield running
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _photograph(page: Any, name: str) -> None:
    sizes = {"390": SIZES["390"]} if name == "list" else SIZES
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for size, (width, height) in sizes.items():
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(SETTLE_MS)
            picture = Image.open(io.BytesIO(page.screenshot()))
            palette = reduce_colours(picture.convert("RGB"))
            palette.save(FOLDER / f"{name}-{theme}-{size}.png", optimize=True)
    if name != "list":
        page.set_viewport_size({"width": 1440, "height": 900})
        page.wait_for_timeout(SETTLE_MS)
    print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
