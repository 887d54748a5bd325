"""20,000 queues: the list scrolls, filters and sorts without long tasks, and costs the node little."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import CDPSession

import recado
from workshop.time_limit import scale

from ..http import Api
from .conftest import OpenPage

QUEUE_COUNT = 20_000
FRAMES_PER_SECOND_MIN = 30
TASK_MAX_MS = 100
HEAP_MAX_BYTES = 150 << 20

SCROLL = """async () => {
    const scroller = document.querySelector(".scroller");
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration)));
    observer.observe({ entryTypes: ["longtask"] });
    const started = performance.now();
    let frames = 0;
    while (performance.now() - started < 2000) {
        scroller.scrollTop += 400;
        await new Promise(requestAnimationFrame);
        frames += 1;
    }
    observer.disconnect();
    return { frames, longest: Math.max(0, ...tasks), top: scroller.scrollTop };
}"""


@pytest.fixture(scope="module")
def crowded() -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        queues = [
            {
                "vhost": "/",
                "name": f"queue-{number:05}",
                "durable": False,
                "auto_delete": False,
                "arguments": {},
            }
            for number in range(QUEUE_COUNT)
        ]
        broker.import_definitions({"queues": queues})
        yield broker


def test_the_list_of_queues_is_smooth(open_page: OpenPage, crowded: recado.Broker) -> None:
    port = crowded.management_port
    assert port is not None
    form = {"username": "guest", "password": "guest"}
    reply = Api(port, headers={}).post("/api/session", form)
    cookie = reply.headers["set-cookie"].split(";")[0]
    page = open_page(port, "#/queues", cookie=cookie)
    page.get_by_text(f"{QUEUE_COUNT:,}", exact=True).wait_for()
    rows = page.locator("tbody tr:not(.spacer)")
    assert rows.count() < 100, "only the rows in view are elements"

    # The CPU time of the page's thread decides: other processes use the same cores. The best of three, since
    # caches are shared with them too.
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    runs = []
    for _ in range(3):
        before = _task_seconds(session)
        run = page.evaluate(SCROLL)
        run["possible_rate"] = run["frames"] / (_task_seconds(session) - before)
        runs.append(run)
    best = max(runs, key=lambda each: each["possible_rate"])
    assert best["top"] > 10_000
    assert best["possible_rate"] >= FRAMES_PER_SECOND_MIN, runs
    assert min(each["longest"] for each in runs) <= scale(TASK_MAX_MS), runs

    page.keyboard.press("/")
    page.keyboard.type("19999")
    page.get_by_text(f"1 of {QUEUE_COUNT:,}").wait_for()
    assert rows.count() == 1
    page.goto(f"http://127.0.0.1:{port}/#/queues?sort=-name")
    page.get_by_role("link", name="queue-19999").wait_for()
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    assert heap <= HEAP_MAX_BYTES, heap


def _task_seconds(session: CDPSession) -> float:
    """Return the CPU time that the tasks of the page have taken."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def test_a_browser_costs_the_node_little(crowded: recado.Broker) -> None:
    """Fifty consoles ask for totals once a second, and every 2.5 seconds for changed queues."""
    port = crowded.management_port
    assert port is not None
    api = Api(port)
    deadline = time.monotonic() + 60
    while not (found := api.get("/api/samples/queues"))["at"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    since = found["at"]
    costs = []
    for path in (f"/api/samples/node?since={since}", f"/api/samples/queues?since={since}"):
        started = time.thread_time()
        began = time.perf_counter()
        for _ in range(20):
            assert api.request("GET", path).status == 200
        costs.append((path, (time.perf_counter() - began) / 20, time.thread_time() - started))
    per_second = costs[0][1] + costs[1][1] / 2.5
    assert 50 * per_second < 2.0, costs  # of wall time, both sides, on a shared machine
