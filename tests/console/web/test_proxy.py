"""The console behind Debian's nginx, below a path."""

from __future__ import annotations

from workshop import console_scene, nginx

from ..http import Api
from .conftest import OpenPage, sign_in

PREFIX = "/tools/broker"


def test_the_console_works_below_a_path(open_page: OpenPage) -> None:
    with console_scene.running(path_prefix=PREFIX) as broker:
        assert broker.management_port is not None
        with nginx.proxy(broker.management_port, PREFIX) as port:
            page = open_page(port, f"{PREFIX.strip('/')}/#/queues/%2F/dead.letters?tab=messages")
            sign_in(page)
            page.get_by_text("rejected, 1 time").first.wait_for()  # the name of the vhost is %2F
            (cookie,) = page.context.cookies()
            assert cookie["path"] == f"{PREFIX}/"
            page.get_by_role("button", name="Publish", exact=True).click()
            page.get_by_role("button", name="Publish message").click()
            page.get_by_text("The message was published.").wait_for()
            page.keyboard.press("Escape")
            page.evaluate("location.hash = '#/'")
            page.locator(".status.live").wait_for()
            page.locator(".tile", has_text="Publish").wait_for()
            page.evaluate("location.hash = '#/exchanges'")
            api = Api(port)
            for number in range(4):  # events pass the proxy, too
                path = f"{PREFIX}/api/exchanges/%2F/new-{number}"
                assert api.put(path, {"type": "fanout"}) == 201
                timeout_ms = 2_500 if number else 30_000
                page.get_by_role("link", name=f"new-{number}").wait_for(timeout=timeout_ms)
