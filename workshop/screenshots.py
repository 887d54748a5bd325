"""Photograph every page of the web console, in both themes and sizes: `python -m workshop.screenshots`.

The pictures are in docs/console/, with a palette of 256 colours so that they stay small. `docs/console/findings.md`
lists what looking at them has found. With names of pages as arguments, only these are photographed.

`--rabbitmq FOLDER` photographs the pages of RabbitMQ's console with the same queues and load instead, to compare.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import quote

import pika
from PIL import Image

from . import peers
from .chromium import launched
from .console_scene import (
    BASIC,
    DEFINITIONS,
    LONG_NAME,
    MARKUP,
    RTL_NAME,
    Load,
    bind_many,
    publish_samples,
    publish_traced,
    running,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs/console"
COLOURS_COUNT: Final = 256
SIZES: Final = {"1440": (1440, 900), "390": (390, 844)}
WARM_UP_MS: Final = 40_000  # until the charts have a shape
SETTLE_MS: Final = 2_500
_Click: TypeAlias = tuple[Literal["link", "button"], str | re.Pattern[str], int]
_TIME: Final = re.compile(r"^\d\d:\d\d:\d\d$")
_PRECISE_TIME: Final = re.compile(r"^\d\d:\d\d:\d\d\.\d\d\d$")
PAGES: Final = {
    "overview": "#/?range=5m",
    "queues": "#/queues",
    "queue": "#/queues/%2F/orders.paid?range=5m",
    "queue-messages": "#/queues/%2F/orders.new?tab=messages&count=5",
    "queue-masked": "#/queues/%2F/payments?tab=messages",
    "queue-unacked": "#/queues/%2F/orders.paid?tab=unacked",
    "queue-dead-letters": "#/queues/%2F/dead.letters?tab=messages",
    "queue-markup": f"#/queues/%2F/{quote(MARKUP, safe='')}?tab=messages",
    "queue-long-name": f"#/queues/%2F/{LONG_NAME}?tab=settings",
    "queue-right-to-left": f"#/queues/%2F/{quote(RTL_NAME)}?tab=messages",
    "queue-bindings": "#/queues/%2F/invoices?tab=bindings",
    "queue-live": "#/queues/%2F/orders.paid?tab=live",
    "queue-publish": "#/queues/%2F/orders.new?tab=publish",
    "exchanges": "#/exchanges",
    "exchange": "#/exchanges/%2F/orders",
    "exchange-many-bindings": "#/exchanges/%2F/stores",
    "route-test": "#/route-test?exchange=orders&key=order.7.paid",
    "dead-letters": "#/dead-letters",
    "dead-letter-queue": "#/dead-letters/%2F/dead.letters",
    "traces": "#/traces",
    "trace": "#/traces",
    "trace-path": "#/traces",
    "trace-reply": "#/traces",
    "bulk-action": "#/queues?filter=orders",
    "bulk-actions": "#/snapshots",
    "connections": "#/connections",
    "connection": "#/connections",
    "channels": "#/channels",
    "consumers": "#/consumers",
    "feeds": "#/feeds",
    "feed": "#/feeds/%2F/prices?tab=archives",
    "feed-search": "#/feeds/%2F/prices?tab=search&selector=sequence+%3E+150",
    "actors": "#/actors",
    "actor-system": "#/actors/exchange",
    "pipelines": "#/pipelines",
    "pipeline": "#/pipelines/bars",
    "policies": "#/policies",
    "virtual-hosts": "#/vhosts",
    "users": "#/users",
    "user": "#/users/app",
    "limits": "#/limits",
    "definitions": "#/definitions",
    "audit": "#/audit",
}

# What is clicked to get to a page whose address has a name that is not known before: role, label, and which of them.
CLICKS: Final[dict[str, tuple[_Click, ...]]] = {
    "connection": (("link", "billing-worker", 0),),
    "trace": (("link", _TIME, 0),),
    "trace-path": (("link", _TIME, 0), ("link", _PRECISE_TIME, -1)),
    "trace-reply": (("link", _TIME, 0), ("link", _PRECISE_TIME, 0)),
    "bulk-action": (("button", re.compile("^Act on"), 0),),
}


RABBITMQ_PAGES: Final = {
    "overview": "#/",
    "queues": "#/queues",
    "queue": "#/queues/%2F/orders.paid",
    "queue-long-name": f"#/queues/%2F/{LONG_NAME}",
    "exchanges": "#/exchanges",
    "exchange": "#/exchanges/%2F/orders",
    "connections": "#/connections",
    "channels": "#/channels",
    "policies": "#/policies",
    "virtual-hosts": "#/vhosts",
    "users": "#/users",
    "user": "#/users/app",
    "limits": "#/limits",
}


def main(names: list[str]) -> None:
    if names[:1] == ["--rabbitmq"]:
        _photograph_rabbitmq(Path(names[1]))
    else:
        _photograph_console(names)


def _photograph_rabbitmq(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with peers.rabbitmq(management=True) as server, launched() as browser:
        url = f"http://{server.host}:{server.http_port}"
        request = urllib.request.Request(
            f"{url}/api/definitions",
            json.dumps(DEFINITIONS).encode(),
            {"authorization": BASIC, "content-type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
            publish_samples(connection.channel())
        load = Load(server.url)
        try:
            page = browser.new_context(reduced_motion="reduce").new_page()
            page.goto(url)
            page.locator("input[name=username]").fill("guest")
            page.locator("input[name=password]").fill("guest")
            page.locator("input[type=submit]").click()
            page.wait_for_selector("#main h1")
            page.wait_for_timeout(WARM_UP_MS)
            for name, path in RABBITMQ_PAGES.items():
                page.evaluate("path => { location.hash = path }", path)
                page.wait_for_timeout(SETTLE_MS)
                _photograph(page, name, folder)
        finally:
            load.stop()


def _photograph_console(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    chosen = {name: path for name, path in PAGES.items() if not names or name in names}
    with (
        tempfile.TemporaryDirectory() as data,
        running(Path(data)) as broker,
        launched() as browser,
    ):
        load = Load(broker.url)
        try:
            url = f"http://127.0.0.1:{broker.management_port}/"
            publish_traced(broker.url, url.rstrip("/"))
            bind_many(broker)
            context = browser.new_context(reduced_motion="reduce")
            page = context.new_page()
            page.goto(url)
            page.wait_for_selector("form")
            if not names or "sign-in" in names:
                _photograph(page, "sign-in")
            if not names or "sign-in-provider" in names:
                answer = {"user": None, "provider": "login.example.com"}
                page.route("**/api/session", lambda route: route.fulfill(json=answer))
                page.goto(f"{url}#/sign-in?problem=denied")
                page.reload()
                page.wait_for_selector(".divider")
                _photograph(page, "sign-in-provider")
                page.unroute("**/api/session")
                page.goto(url)
                page.reload()
            page.get_by_label("User name").fill("guest")
            page.get_by_label("Password").fill("guest")
            page.get_by_label("Password").press("Enter")
            page.wait_for_selector("main#main h1")
            page.mouse.move(720, 899)
            page.wait_for_timeout(WARM_UP_MS)
            for name, path in chosen.items():
                page.evaluate("path => { location.hash = path }", path)
                page.wait_for_timeout(SETTLE_MS)
                for role, label, index in CLICKS.get(name, ()):
                    page.set_viewport_size({"width": 1440, "height": 900})
                    page.get_by_role(role, name=label).nth(index).click()
                    page.mouse.move(720, 899)
                    page.wait_for_timeout(SETTLE_MS)
                _photograph(page, name)
        finally:
            load.stop()


def _photograph(page: Page, name: str, folder: Path = FOLDER) -> None:
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(150)
            picture = Image.open(io.BytesIO(page.screenshot()))
            palette = reduce_colours(picture.convert("RGB"))
            palette.save(folder / f"{name}-{theme}-{size}.png", optimize=True)
    print(name, flush=True)


def reduce_colours(picture: Image.Image) -> Image.Image:
    """Return a picture with its most frequent colours, which are the surfaces, the text and the lines of charts.

    Bright colours count more, because few pixels have them: they are those of states.
    """
    pixels = picture.tobytes()
    counted = Counter(zip(pixels[::3], pixels[1::3], pixels[2::3], strict=True))
    for colour, number in list(counted.items()):
        counted[colour] = number * (1 + (max(colour) - min(colour)) // 4)
    palette = Image.new("P", (1, 1))
    palette.putpalette(
        [part for colour, _ in counted.most_common(COLOURS_COUNT) for part in colour]
    )
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main(sys.argv[1:])
