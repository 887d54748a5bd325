"""The pages against hostile names, bodies and pages, in a browser that enforces the content security policy."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pika
import pytest

import recado
from workshop.console_scene import MARKUP

from .conftest import OpenPage, sign_in

QUEUE = f"#/queues/%2F/{quote(MARKUP, safe='')}"


@pytest.mark.parametrize(
    "path",
    [
        "#/",
        "#/queues",
        QUEUE,
        f"{QUEUE}?tab=messages",
        f"{QUEUE}?tab=bindings",
        f"{QUEUE}?tab=consumers",
        f"{QUEUE}?tab=unacked",
        f"#/audit?object={quote(MARKUP)}",
        f"#/queues?filter={quote(MARKUP)}",
        "#/exchanges/%2F/orders",
        "#/connections",
        "#/actors/exchange",
        f"#/route-test?exchange=orders&key={quote(MARKUP)}",
        f"#/{quote(MARKUP, safe='')}",
        f"#/users/{quote(MARKUP, safe='')}",
    ],
)
def test_markup_of_clients_is_shown_and_never_executed(
    signed_in: OpenPage, scene: recado.Broker, path: str
) -> None:
    parameters = pika.URLParameters(scene.url)
    parameters.client_properties = {"connection_name": MARKUP, "platform": MARKUP}
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)  # one is unacknowledged, the other one ready
        channel.basic_consume(MARKUP, lambda *_: None, consumer_tag=MARKUP)
        page = signed_in(path, expected="404", bypass_csp=True)  # the policy is a second line
        page.wait_for_function("!document.querySelector('.loading')")
        is_shown = path not in ("#/", f"#/{quote(MARKUP, safe='')}")
        if is_shown and not path.endswith("%2F/orders"):
            page.get_by_text(MARKUP, exact=False).first.wait_for(state="attached")
        assert page.locator("main img, main script, main iframe").count() == 0
        assert "executed" not in page.title().replace(MARKUP, "")


def test_markup_in_reply_texts_is_shown_and_never_executed(signed_in: OpenPage) -> None:
    """The broker's refusal names the queue, and a refused header its name."""
    page = signed_in("#/queues", expected="400", bypass_csp=True)
    page.get_by_role("button", name="Add queue").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill(MARKUP)
    dialog.get_by_label("Maximum length").fill("5")
    dialog.get_by_role("button", name="Add queue").click()
    alert = dialog.get_by_role("alert")
    alert.get_by_text(MARKUP).wait_for()
    assert "inequivalent arg" in alert.inner_text()
    page.keyboard.press("Escape")
    page.evaluate("path => { location.hash = path }", f"{QUEUE}?tab=messages")
    selector = page.get_by_label("Selector")
    selector.fill(f"{MARKUP} = 1")
    selector.press("Enter")
    page.get_by_role("alert").filter(has_text="selector: line 1").wait_for()
    page.evaluate("path => { location.hash = path }", f"{QUEUE}?tab=publish")
    page.get_by_label("Headers").fill(MARKUP)
    page.get_by_role("button", name="Publish message").click()
    page.get_by_role("alert").filter(has_text="<img src").wait_for()
    assert page.locator("main img, dialog img, .notices img").count() == 0
    assert page.title() != "executed"


def test_an_id_that_was_planted_is_never_a_session(
    open_page: OpenPage, scene: recado.Broker, signed_in: OpenPage
) -> None:
    """Session fixation: an attacker sets the cookie before the user signs in, and knows its value."""
    (cookie,) = signed_in().context.cookies()
    planted = "a" * len(cookie["value"])
    page = open_page(scene.management_port, cookie=f"{cookie['name']}={planted}", expected="401")
    sign_in(page)
    page.get_by_role("heading", name="Overview").wait_for()
    (after,) = page.context.cookies()
    assert (after["name"], after["value"] != planted) == (cookie["name"], True)
    attacker = open_page(scene.management_port, cookie=f"{cookie['name']}={planted}")
    attacker.get_by_role("button", name="Sign in").wait_for()


def test_the_policy_refuses_scripts_requests_and_markup(
    signed_in: OpenPage, scene: recado.Broker
) -> None:
    page = signed_in(expected="violates|Trusted")
    page.evaluate(
        """() => {
            globalThis.violations = [];
            document.addEventListener("securitypolicyviolation", (event) => violations.push(event.effectiveDirective));
        }"""
    )
    attempts = {
        "eval": "() => { try { return (0, eval)('1') } catch (error) { return error.name } }",
        "markup": "() => { try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name } }",
        "style": "() => { const style = document.createElement('style'); style.textContent = 'body { display: none }'; "
        "document.head.append(style); return getComputedStyle(document.body).display }",
        "other host": "() => fetch('http://127.0.0.2:9/').then(() => 'sent', (error) => error.name)",
        "frame": "() => { const frame = document.createElement('iframe'); frame.src = 'http://127.0.0.2:9/'; "
        "document.body.append(frame); return 'added' }",
        "base": "() => { const base = document.createElement('base'); base.href = 'http://127.0.0.2:9/'; "
        "document.head.append(base); return document.baseURI.includes('127.0.0.2') }",
    }
    # In a task of the page: what the debugger evaluates may use `eval` in spite of the policy.
    found = {
        name: page.evaluate(f"new Promise((resolve) => setTimeout(() => resolve(({script})())))")
        for name, script in attempts.items()
    }
    assert found["eval"] in ("EvalError", "TypeError")
    assert found["markup"] == "TypeError"
    assert found["style"] != "none"
    assert found["other host"] == "TypeError"
    assert found["base"] is False
    page.wait_for_function("violations.length >= 4")
    violations = set(page.evaluate("violations"))
    assert {"connect-src", "frame-src", "style-src-elem"} <= violations


def test_other_sites_cannot_frame_the_console(open_page: OpenPage, scene: recado.Broker) -> None:
    page = open_page(scene.management_port, expected="frame")
    other = page.context.new_page()
    other.set_content(f'<iframe src="http://127.0.0.1:{scene.management_port}/"></iframe>')
    frame = other.frames[1]
    frame.wait_for_load_state()
    assert frame.url.startswith("chrome-error:")


def test_forms_of_other_sites_change_nothing(signed_in: OpenPage, scene: recado.Broker) -> None:
    """A page of another origin sends a form with the cookies that the browser would add."""
    page = signed_in()
    port = scene.management_port
    answers: list[Any] = []
    other = page.context.new_page()
    other.on("response", lambda each: answers.append(each.status) if "/api/" in each.url else None)
    target = f"http://127.0.0.1:{port}/api/exchanges/%2F/amq.default/publish"
    other.set_content(f'<form method="post" action="{target}"><input name="x"></form>')
    with other.expect_response(lambda each: "/api/" in each.url):
        other.evaluate("setTimeout(() => document.forms[0].submit())")
    assert answers in ([401], [403])
    third = page.context.new_page()
    stolen = third.evaluate(
        f"fetch('http://127.0.0.1:{port}/api/queues', {{ credentials: 'include' }}).then(() => 'read', () => 'refused')"
    )
    assert stolen == "refused"


def test_scripts_cannot_read_the_session(signed_in: OpenPage) -> None:
    page = signed_in()
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    stored = page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }])")
    assert cookie["value"] not in stored
