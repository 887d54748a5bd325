"""Every page in Chromium: axe finds nothing in both themes and both sizes, no page logs an error."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from workshop import vendor
from workshop.console_scene import LONG_NAME, MARKUP, RTL_NAME

from .conftest import OpenPage

PAGES = {
    "overview": "#/",
    "overview as a table": "#/?view-rates=table&chart=rates",
    "queues": "#/queues",
    "queue": "#/queues/%2F/orders.paid",
    "messages": "#/queues/%2F/orders.paid?tab=messages",
    "unacknowledged": "#/queues/%2F/orders.paid?tab=unacked",
    "messages with markup": f"#/queues/%2F/{quote(MARKUP, safe='')}?tab=messages",
    "bindings": "#/queues/%2F/invoices?tab=bindings",
    "consumers of a queue": "#/queues/%2F/invoices?tab=consumers",
    "settings": "#/queues/%2F/orders.new?tab=settings",
    "live": "#/queues/%2F/orders.new?tab=live",
    "publish": "#/queues/%2F/orders.new?tab=publish",
    "a long name": f"#/queues/%2F/{LONG_NAME}",
    "a name from right to left": f"#/queues/%2F/{quote(RTL_NAME)}",
    "stream": "#/queues/%2F/orders.audit?tab=messages",
    "offsets of a stream": "#/queues/%2F/orders.audit?tab=consumers",
    "exchanges": "#/exchanges",
    "exchange": "#/exchanges/%2F/orders",
    "dead letters": "#/dead-letters",
    "dead letters of a queue": "#/dead-letters/%2F/dead.letters",
    "traces": "#/traces",
    "no such trace": "#/traces/none",
    "bulk actions": "#/snapshots",
    "no such bulk action": "#/snapshots/none",
    "route test": "#/route-test?exchange=orders&key=order.7.paid",
    "connections": "#/connections",
    "channels": "#/channels",
    "consumers": "#/consumers",
    "feeds": "#/feeds",
    "feed": "#/feeds/%2F/prices",
    "archives of a feed": "#/feeds/%2F/prices?tab=archives",
    "search of a feed": "#/feeds/%2F/prices?tab=search",
    "subscriber of a feed": "#/feeds/%2F/prices?tab=subscriber",
    "actor systems": "#/actors",
    "actor system": "#/actors/exchange",
    "pipelines": "#/pipelines",
    "pipeline": "#/pipelines/bars",
    "policies": "#/policies",
    "virtual hosts": "#/vhosts",
    "virtual host": "#/vhosts/shop",
    "users": "#/users",
    "user": "#/users/app",
    "limits": "#/limits",
    "definitions": "#/definitions",
    "audit log": "#/audit",
    "no such queue": "#/queues/%2F/none",
    "no such page": "#/none",
}
SIZES = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
AXE = (vendor.TESTS / "axe.min.js").read_text()


COLOR_RULES = ["color-contrast", "link-in-text-block"]
"""The rules of axe that depend on colors; a theme changes nothing else."""


def find_violations(page: Any, rules: list[str] | None = None) -> list[str]:
    """Return what violates some rules of axe, or all of them."""
    # Without preloading, axe does not request the style sheets again; no rule that is enabled needs them.
    options = {
        "resultTypes": ["violations"],
        "preload": False,
        **({"runOnly": rules} if rules else {}),
    }
    found = page.evaluate("options => axe.run(options)", options)
    return [
        f"{each['id']}: {node['html']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def check_in_all_forms(page: Any) -> list[str]:
    """Return what is wrong in either theme at either size."""
    problems = []
    for theme, rules in (("light", None), ("dark", COLOR_RULES)):
        page.emulate_media(color_scheme=theme)
        for name, size in SIZES.items():
            page.set_viewport_size(size)
            problems += [f"{theme}, {name}: {each}" for each in find_violations(page, rules)]
            too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if too_wide > 0:
                problems.append(f"{theme}, {name}: the page scrolls sideways by {too_wide} px")
    return problems


def go(page: Any, path: str) -> None:
    """Show a page, and wait until its data is there."""
    frames = "resolve => requestAnimationFrame(() => requestAnimationFrame(resolve))"
    page.evaluate(f"path => {{ location.hash = path; return new Promise({frames}) }}", path)
    page.wait_for_function("() => !document.querySelector('.loading')")


def test_every_page_is_accessible(signed_in: OpenPage) -> None:
    """One test, because loading axe takes longer than running it."""
    page = signed_in(bypass_csp=True, expected="404")
    page.evaluate(AXE)
    problems = {}
    for name, path in PAGES.items():
        go(page, path)
        if found := check_in_all_forms(page):
            problems[name] = found
    assert problems == {}, "\n".join(
        f"{name}: {each}" for name, found in problems.items() for each in found
    )


def test_signing_in_is_accessible(open_page: OpenPage, scene: Any) -> None:
    page = open_page(scene.management_port, bypass_csp=True)
    page.wait_for_selector("form")
    page.evaluate(AXE)
    assert check_in_all_forms(page) == []


DIALOGS = (
    ("#/queues", "Add queue"),
    ("#/queues?x=", "Columns"),
    ("#/queues/%2F/orders.new", "Move"),
    ("#/queues/%2F/orders.new?x=", "Purge"),
    ("#/queues/%2F/orders.new?tab=settings", "Alter"),
    ("#/exchanges", "Add exchange"),
    ("#/policies", "Add policy"),
    ("#/traces", "Start a trace"),
    ("#/dead-letters/%2F/dead.letters", "Replay…"),
    ("#/users", "Add user"),
)


def test_dialogs_are_accessible(signed_in: OpenPage) -> None:
    page = signed_in(bypass_csp=True)
    page.evaluate(AXE)
    problems: list[str] = []
    for path, button in DIALOGS:
        page.set_viewport_size({"width": 1440, "height": 900})
        go(page, path)
        page.get_by_role("button", name=button, exact=True).click()
        page.wait_for_selector("dialog[open]")
        problems += [f"{button}: {each}" for each in check_in_all_forms(page)]
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
    assert problems == [], "\n".join(problems)
