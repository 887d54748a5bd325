"""Every view in both themes, on a wide screen and on a phone: axe finds nothing, and nothing is cut."""

from __future__ import annotations

from typing import Any

from tests.console.web.test_pages import AXE, SIZES, find_violations

from .conftest import OpenPage, SignIn

FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def check_in_all_forms(page: Any) -> list[str]:
    """Return what is wrong in either theme at either size. The parts of the page depend on its size."""
    problems = []
    for name, size in SIZES.items():
        page.set_viewport_size(size)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.evaluate(FRAMES)
            problems += [f"{theme}, {name}: {each}" for each in find_violations(page)]
        too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if too_wide > 0:
            problems.append(f"{name}: the page scrolls sideways by {too_wide} px")
    return problems


def test_every_view_is_accessible(open_page: OpenPage, sign_in: SignIn, room: str) -> None:
    """One test, because loading axe takes longer than running it."""
    problems: dict[str, list[str]] = {}
    start = open_page(sign_in("Eva").page.url, bypass_csp=True)
    start.get_by_label("Name").wait_for()
    start.evaluate(AXE)
    problems["choose a name"] = check_in_all_forms(start)

    ion = sign_in("Ion", room)
    ana = sign_in("Ana", bypass_csp=True)
    page = ana.page
    page.evaluate(AXE)

    def check(name: str) -> None:
        problems[name] = check_in_all_forms(page)
        page.set_viewport_size({"width": 1440, "height": 900})

    check("no room yet")
    ana.join(room)
    check("an empty room")
    ion.write("Hello https://example.com/" + "long" * 40)
    ion.write(f"@{ana.name} look")
    ana.see(f"@{ana.name} look")
    ana.reply(f"@{ana.name} look", "I see \N{EYES}")
    ana.see("I see \N{EYES}")
    ana.write("\x1f")
    page.get_by_text("Not sent.").wait_for()
    ana.write("Waiting")
    ana.message("I see \N{EYES}").hover()
    check("a room")
    for button, title in (("Members", "Members"), ("Search", "Search")):
        page.get_by_role("button", name=button, exact=True).click()
        page.get_by_role("complementary", name=title).wait_for()
        if button == "Search":
            page.get_by_label("Search messages").fill("hello")
            page.get_by_text("1 message", exact=True).wait_for()
        check(title)
    page.get_by_role("button", name="AMQP traffic").click()
    page.get_by_role("complementary", name="AMQP traffic").get_by_role("link").first.wait_for()
    check("traffic")
    page.get_by_role("link", name="queue.bind").first.click()
    page.get_by_role("heading", name="Bind a queue").wait_for()
    check("an explanation")
    page.get_by_role("link", name="Back to the conversation").click()
    page.get_by_role("button", name="Close AMQP traffic").click()
    page.get_by_role("button", name=ion.name, exact=True).first.click()
    page.get_by_role("heading", name=ion.name, level=1).wait_for()
    ana.write("In private")
    ana.see("In private")
    check("a private conversation")
    page.get_by_role("button", name="Emoji").click()
    check("emoji")
    page.keyboard.press("Escape")
    ana.field.press_sequentially(":smi")
    page.get_by_role("option").first.wait_for()
    check("suggestions")
    for button in ("All rooms", "Settings and help"):
        page.get_by_role("button", name=button).click()
        check(button)
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Settings and help").click()
    page.get_by_role("button", name="Shortcuts").click()
    check("shortcuts")
    page.keyboard.press("Escape")
    page.evaluate("location.hash = '#/room/another'")
    page.get_by_role("heading", name="You are not in another").wait_for()
    check("a room of others")
    assert {name: found for name, found in problems.items() if found} == {}, "\n".join(
        f"{name}: {each}" for name, found in problems.items() for each in found
    )


def test_a_phone_shows_one_thing_at_a_time(sign_in: SignIn, room: str) -> None:
    ana = sign_in("Ana", viewport=SIZES["phone"], has_touch=True, is_mobile=True, bypass_csp=True)
    ana.page.get_by_label("Name of a room").fill(room)
    ana.page.get_by_label("Name of a room").press("Enter")
    ana.page.get_by_role("heading", name=room, exact=True).wait_for()
    ana.entry(room).wait_for(state="hidden")
    ana.write("From the phone")
    ana.see("From the phone").tap()
    ana.message("From the phone").get_by_role("button", name="Reply", exact=True).last.tap()
    ana.write("To myself")
    ana.see("To myself")
    ana.page.get_by_role("button", name="AMQP traffic").tap()
    ana.field.wait_for(state="hidden")
    ana.page.get_by_role("link", name="queue.bind").first.tap()
    ana.page.get_by_role("heading", name="Bind a queue").wait_for()
    ana.page.get_by_role("heading", name="AMQP traffic").wait_for(state="hidden")
    ana.page.get_by_role("link", name="Back to the conversation").tap()
    ana.page.get_by_role("button", name="Close AMQP traffic").tap()
    ana.page.get_by_role("link", name="Back to the list").tap()
    ana.entry(room).wait_for()
    ana.page.evaluate(AXE)
    assert find_violations(ana.page) == []
    ana.field.wait_for(state="hidden")
    assert ana.page.evaluate("document.documentElement.scrollWidth") == 390
