"""Pages whose content appears only after something was done: axe, the console's log, and use by keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

import recado
from workshop.console_scene import bind_many, publish_traced

from ..http import Api
from .conftest import OpenPage
from .test_pages import AXE, check_in_all_forms, go

TAB_STOPS_MAX = 200

# Collects the elements that the Tab key focuses, and those of them whose focus cannot be seen.
WATCH_FOCUS = """() => {
    window.focused = new Set();
    window.unmarked = new Set();
    document.addEventListener("focusin", ({ target }) => {
        window.focused.add(target);
        if (getComputedStyle(target).outlineStyle === "none") window.unmarked.add(target.outerHTML);
    });
}"""
FIND_UNREACHED = """() => {
    const controls = "a[href], button, input, select, textarea, summary, [tabindex]";
    // A long list has the focus itself, and is scrolled by keys; its rows come and go while Tab moves through them.
    const isUsable = (each) => each.tabIndex >= 0 && !each.disabled
        && each.checkVisibility({ visibilityProperty: true }) && !each.closest(".scroller:not(.whole) tbody");
    const missed = [...document.querySelectorAll(controls)]
        .filter((each) => isUsable(each) && !window.focused.has(each));
    const mouseOnly = [...document.querySelectorAll("main *")].filter((each) =>
        getComputedStyle(each).cursor === "pointer" && !each.closest(`${controls}, label`));
    return [...window.unmarked, ...missed.map((each) => each.outerHTML), ...mouseOnly.map((each) => each.outerHTML)];
}"""


@pytest.fixture(scope="module")
def pages(scene: recado.Broker) -> Iterator[dict[str, tuple[str, str]]]:
    """The address of each page, and a text that it shows once its content is there."""
    assert scene.management_port is not None
    api = Api(scene.management_port)
    publish_traced(scene.url, f"http://127.0.0.1:{scene.management_port}")
    trace = api.get("/api/traces")[0]["id"]
    chosen = api.post("/api/snapshots", {"name_contains": "orders.", "vhost": "/"}).body["id"]
    messages = api.post("/api/snapshots", {"vhost": "/", "queue": "orders.new"}).body["id"]
    ended = api.post("/api/snapshots", {"name_contains": "unrouted", "vhost": "/"}).body["id"]
    assert api.post(f"/api/snapshots/{ended}/run", {"action": "purge"}).status < 300
    bind_many(scene)
    with pika.BlockingConnection(pika.URLParameters(scene.url)) as connection:
        for _ in range(3):
            assert connection.channel().basic_get("orders.paid")[0] is not None
        yield {
            "traces": ("#/traces", "traced-%"),
            "trace": (f"#/traces/{trace}", "traced-1"),
            "path of a message": (f"#/traces/{trace}/1", "What happened"),
            "request with its reply": (f"#/traces/{trace}/3", "Content of message 4"),
            "bulk actions": ("#/snapshots", "none yet"),
            "chosen queues": (f"#/snapshots/{chosen}?action=move", "To queue"),
            "chosen messages": (f"#/snapshots/{messages}?action=replay", "Replayed at most"),
            "ended bulk action": (f"#/snapshots/{ended}", "Done."),
            "dead letters": ("#/dead-letters", "dead.letters"),
            "dead letters of a queue": ("#/dead-letters/%2F/dead.letters", "orders.new"),
            "unacknowledged": ("#/queues/%2F/orders.paid?tab=unacked", "basic.get"),
            "audit log": ("#/audit", "revealed: true"),
            "search of an archive": (
                "#/feeds/%2F/prices?tab=search&selector=sequence+%3E+150",
                "messages match",
            ),
            "many bindings": ("#/exchanges/%2F/stores", "store.0000.#"),
        }


def _show(page: Any, path: str, text: str) -> None:
    go(page, path)
    page.locator("main#main").get_by_text(text).first.wait_for()


def test_pages_with_content_are_accessible(
    signed_in: OpenPage, pages: dict[str, tuple[str, str]]
) -> None:
    page = signed_in(bypass_csp=True)
    page.evaluate(AXE)
    problems: list[str] = []
    for name, (path, text) in pages.items():
        page.set_viewport_size({"width": 1440, "height": 900})
        _show(page, path, text)
        problems += [f"{name}: {each}" for each in check_in_all_forms(page)]
    assert problems == [], "\n".join(problems)


def test_pages_with_content_are_used_by_keyboard(
    signed_in: OpenPage, pages: dict[str, tuple[str, str]]
) -> None:
    """The Tab key reaches every control, each shows that it has the focus, and nothing needs a mouse."""
    page = signed_in()
    problems: list[str] = []
    for name, (path, text) in pages.items():
        _show(page, path, text)
        page.evaluate(WATCH_FOCUS)
        for _ in range(TAB_STOPS_MAX):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body"):
                break  # past the last control
        problems += [f"{name}: {each}" for each in page.evaluate(FIND_UNREACHED)]
    assert problems == [], "\n".join(problems)


def test_a_thousand_bindings_stay_readable(signed_in: OpenPage, scene: recado.Broker) -> None:
    bind_many(scene)
    page = signed_in("#/exchanges/%2F/stores")
    diagram = page.get_by_role("region", name="Diagram of 1,000 bindings")
    diagram.get_by_text("334 bindings").wait_for()
    assert diagram.locator("rect").count() == 4, "one exchange and three queues"
    rows = page.locator("tbody tr:not(.spacer)")
    assert rows.count() < 100, "only the rows in view are elements"
    page.keyboard.press("/")
    page.keyboard.type("store.0042")
    page.get_by_text("1 of 1,000").wait_for()
    assert rows.count() == 1
    assert "filter=store.0042" in page.url
    diagram = page.get_by_role("region", name="Diagram of 1 binding;")
    diagram.get_by_text("store.0042.#").wait_for()
