"""A browser, a broker with something of everything, and pages that must not log errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import recado
from recado.console import console
from recado.console.sampler import Sampler
from workshop import console_scene
from workshop.chromium import launched

from ..http import Api

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

TIMEOUT_MS = 30_000
PLAIN_HOST = "console.test"
"""A name of this machine. Unlike an address of loopback, the browser does not trust it without TLS."""

OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed after each module: while Playwright runs, its thread cannot run another event loop."""
    with launched(f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1") as running:
        yield running


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[recado.Broker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "Sampler", partial(Sampler, interval=0.5))
        with console_scene.running(tmp_path_factory.mktemp("data")) as broker:
            yield broker


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open pages in a new profile each; at the end, none may have logged an error or a refused request."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_page(
        port: int,
        path: str = "",
        *,
        host: str = "127.0.0.1",
        expected: str = "\0",
        cookie: str = "",
        **options: Any,
    ) -> Page:
        """`expected` is a pattern of the errors that the test provokes, `cookie` is that of a session."""
        defaults = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**defaults, **options})
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        if cookie:
            name, _, value = cookie.partition("=")
            url = f"http://127.0.0.1:{port}/"
            context.add_cookies(
                [{"name": name, "value": value, "url": url, "httpOnly": True, "sameSite": "Strict"}]
            )
        page = context.new_page()

        def note(text: str) -> None:
            if not re.search(expected, text):
                problems.append(text)

        page.on("console", lambda each: note(each.text) if each.type == "error" else None)
        page.on("pageerror", lambda each: note(str(each)))
        page.on("request", lambda each: None if f":{port}/" in each.url else note(each.url))
        page.goto(f"http://{host}:{port}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def cookies() -> dict[tuple[str, str], str]:
    """The cookies of sessions by user and password; filled by `signed_in`."""
    return {}


@pytest.fixture
def signed_in(
    open_page: OpenPage, scene: recado.Broker, cookies: dict[tuple[str, str], str]
) -> OpenPage:
    """Open a page of the console with a session."""

    def open_signed_in(
        path: str = "", user: str = "guest", password: str = "guest", **options: Any
    ) -> Page:
        assert scene.management_port is not None
        if (user, password) not in cookies:
            form = {"username": user, "password": password}
            reply = Api(scene.management_port, headers={}).post("/api/session", form)
            cookies[user, password] = reply.headers["set-cookie"].split(";")[0]
        cookie = cookies[user, password]
        page = open_page(scene.management_port, path, cookie=cookie, **options)
        page.wait_for_selector("main#main h1")
        return page

    return open_signed_in


def sign_in(page: Page, user: str = "guest", password: str = "guest") -> None:
    """Fill in the form, and send it by the keyboard."""
    page.get_by_label("User name").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_label("Password").press("Enter")
