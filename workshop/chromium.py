"""Debian's Chromium, driven by Playwright, for tests and screenshots of the web console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .system import CHROMIUM, need

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARGUMENTS: Final = (
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    # It must not look for updates and the like: no test contacts another host.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def launched(*arguments: str) -> Iterator[Browser]:
    """Run a headless browser. While it runs, this thread cannot run asyncio's loop."""
    from playwright.sync_api import sync_playwright

    (path,) = need(CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=[*ARGUMENTS, *arguments], timeout=60_000
        )
        try:
            yield browser
        finally:
            browser.close()
