"""A room with 10,000 messages: it scrolls without long tasks, and what is read does not move."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest
from playwright.sync_api import CDPSession

from recado.apps.chat.messages import ChatUser, Kind, Publication, make_publication_id
from recado.apps.chat.server import RunningChat
from workshop.time_limit import scale

from .conftest import Person, SignIn

MESSAGE_COUNT = 10_000
FRAMES_PER_SECOND_MIN = 30
TASK_MAX_MS = 100
HEAP_MAX_BYTES = 150 << 20
TEXT = "a message is published to an exchange and every queue that is bound gets a copy of it"
WORDS = TEXT.split()

SCROLL = """async (step) => {
    const scroller = document.querySelector(".messages");
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration)));
    observer.observe({ entryTypes: ["longtask"] });
    const started = performance.now();
    let frames = 0;
    while (performance.now() - started < 1500) {
        scroller.scrollTop += step;
        await new Promise(requestAnimationFrame);
        frames += 1;
    }
    observer.disconnect();
    return { frames, longest: Math.max(0, ...tasks) };
}"""
TO_THE_BEGINNING = """async () => {
    const scroller = document.querySelector(".messages");
    while (!document.querySelector(".intro")) {
        scroller.scrollTop = 0;
        await new Promise(requestAnimationFrame);
    }
    scroller.scrollTop = 0;
}"""
TOPS = """() => Object.fromEntries([...document.querySelectorAll(".message")].map((each) => {
    const { top, bottom } = each.getBoundingClientRect();
    return [each.dataset.id, bottom > 60 && top < innerHeight ? top : null];
}).filter(([, top]) => top !== null))"""


def text_of(number: int) -> str:
    return f"{number}: " + " ".join(
        WORDS[(number * 7 + each) % len(WORDS)] for each in range(number % 53 + 1)
    )


@pytest.fixture(scope="module")
def long_room(chat: RunningChat) -> str:
    """A room in which many messages were written."""
    name = f"long {secrets.token_hex(3)}"
    author = ChatUser(secrets.token_hex(16), "Author")

    async def write() -> None:
        sent = []
        for number in range(MESSAGE_COUNT):
            client_id = str(number)
            publication = Publication(
                id=make_publication_id(author.id, client_id),
                kind=Kind.MESSAGE,
                conversation=f"room:{name}",
                author=author,
                client_id=client_id,
                text=text_of(number),
            )
            sent.append(await chat.chat.history.publish(publication))
        await asyncio.gather(*sent)

    asyncio.run_coroutine_threadsafe(write(), chat.failure.get_loop()).result()
    return name


def test_ten_thousand_messages_scroll_smoothly(sign_in: SignIn, long_room: str) -> None:
    ana = sign_in("Ana", long_room)
    ana.see(text_of(MESSAGE_COUNT - 1))
    page = ana.page
    page.evaluate(TO_THE_BEGINNING)
    ana.see(text_of(0))
    rows = page.locator(".message")
    assert rows.count() < 120, "only the messages in view are elements"

    # The CPU time of the page's thread decides: other processes use the same cores. The best of three, since
    # caches are shared with them too.
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    runs = []
    for step in (400, 400, -400):
        before = _task_seconds(session)
        run = page.evaluate(SCROLL, step)
        run["possible_rate"] = run["frames"] / (_task_seconds(session) - before)
        runs.append(run)
    best = max(runs, key=lambda each: each["possible_rate"])
    assert best["possible_rate"] >= FRAMES_PER_SECOND_MIN, runs
    assert min(each["longest"] for each in runs) <= scale(TASK_MAX_MS), runs
    assert rows.count() < 120
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    assert heap <= HEAP_MAX_BYTES, heap

    page.get_by_role("button", name="Newest").click()
    ana.see(text_of(MESSAGE_COUNT - 1))
    ana.wait_until(
        "(e => e.scrollHeight - e.scrollTop - e.clientHeight < 2)(document.querySelector('.messages'))"
    )


def test_what_is_read_does_not_move(sign_in: SignIn, long_room: str) -> None:
    """Messages arrive and change, older pages are loaded, the field grows, and own messages are confirmed."""
    ana, ion = sign_in("Ana", long_room), sign_in("Ion", long_room)
    ion.write("Short")
    ana.see("Short")
    box = ana.page.locator(".messages").bounding_box()
    assert box is not None
    ana.page.mouse.move(box["x"] + 200, box["y"] + 200)
    ana.page.mouse.wheel(0, -700)
    ana.page.get_by_role("button", name="Newest").wait_for()
    tops = _settled(ana)
    assert len(tops) > 3

    def check() -> None:
        now = _settled(ana)
        assert {key: round(top) for key, top in tops.items()} == {
            key: round(now.get(key, 1e6)) for key in tops
        }

    ion.field.press("ArrowUp")
    ion.page.get_by_text("Edit your message").wait_for()
    ion.write("Long " * 200)
    ion.page.get_by_text("edited").first.wait_for()
    for number in range(5):
        ion.write(f"New {number}")
    ana.page.get_by_role("button", name="5 new messages").wait_for()
    check()

    # A page before the first loaded message, which is far above what is in view.
    ana.page.evaluate("document.querySelector('.messages').scrollTop -= 2000")
    tops = _settled(ana)
    loads = (
        "performance.getEntriesByType('resource').filter(each => /before=/.test(each.name)).length"
    )
    count = ana.page.evaluate(loads)
    ana.page.evaluate("document.querySelector('.messages').scrollTop = 400")
    tops = _settled(ana)
    ana.wait_until(f"count => {loads} > count", count)
    check()

    ana.page.set_viewport_size({"width": 1440, "height": 700})
    now = _settled(ana)
    assert all(round(now[key]) == round(tops[key]) for key in now if key in tops)


def _settled(person: Person) -> dict[str, float]:
    """Return where the messages in view are, when that no longer changes."""
    frames = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    previous: dict[str, float] | None = None
    while True:
        person.page.evaluate(frames)
        found: dict[str, float] = person.page.evaluate(TOPS)
        if found == previous:
            return found
        previous = found


def _task_seconds(session: CDPSession) -> float:
    """Return the CPU time that the tasks of the page have taken."""
    metrics: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
