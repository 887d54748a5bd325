"""Traces, live views, dead letters and bulk actions in Chromium."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from typing import Any

import pika
import pytest

import recado
from workshop.console_scene import MARKUP, publish_traced

from ..http import Api
from .conftest import OpenPage
from .test_use import heading


@pytest.fixture
def channel(scene: recado.Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(scene.url)) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened


@pytest.fixture
def api(scene: recado.Broker) -> Api:
    assert scene.management_port is not None
    return Api(scene.management_port)


def test_the_path_of_a_message_is_shown(signed_in: OpenPage, scene: recado.Broker) -> None:
    publish_traced(scene.url, f"http://127.0.0.1:{scene.management_port}")
    page = signed_in("#/traces")
    page.get_by_role("row", name=re.compile("traced")).get_by_role("link").click()
    page.get_by_role("row", name=re.compile("traced-1")).get_by_role("link").click()
    heading(page, "traced-1")
    for text in ("published", "rejected", "forwarded", "to the exchange dead: rejected"):
        page.get_by_role("table").get_by_text(text).first.wait_for()
    picture = page.get_by_role("img", name=re.compile("^The path"))
    label = picture.get_attribute("aria-label")
    assert label is not None
    assert "orders.new to dead, dead to dead.letters" in label
    page.get_by_text('"price": 21').wait_for()
    page.go_back()
    page.get_by_role("row", name=re.compile("traced-3")).get_by_role("link").click()
    page.get_by_text("2 messages", exact=True).wait_for()
    page.get_by_role("heading", name="Content of message 4").wait_for()
    page.goto(f"http://127.0.0.1:{scene.management_port}/#/traces")
    page.get_by_role("row", name=re.compile("traced")).get_by_role("link").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text(re.compile("^ended")).wait_for()
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("button", name="Forget trace").click()
    page.get_by_text("No message is followed.").wait_for()


def test_a_trace_is_started_in_the_page(signed_in: OpenPage, channel: Any) -> None:
    channel.queue_declare("traced")
    page = signed_in("#/traces")
    page.get_by_role("button", name="Start a trace").click()
    page.get_by_label("Message id").fill("m-77")
    page.get_by_role("button", name="Start trace", exact=True).click()
    heading(page, "message id m-77")
    page.get_by_text("No message yet.").wait_for()
    hostile = pika.BasicProperties(message_id="m-77", correlation_id=MARKUP)
    channel.basic_publish("", "traced", MARKUP.encode(), hostile)
    page.get_by_role("row", name=re.compile("m-77")).get_by_role("link").click()
    page.locator(".payload", has_text=MARKUP).wait_for()
    assert page.title() != "executed"
    channel.queue_delete("traced")
    page.get_by_role("table").get_by_text("the queue was deleted").wait_for()


def test_a_live_view_is_bounded_and_tells_what_it_skipped(
    signed_in: OpenPage, channel: Any
) -> None:
    channel.queue_declare("busy", arguments={"x-max-length": 10})
    page = signed_in("#/queues/%2F/busy?tab=live")
    page.get_by_text("Live. 0 messages entered").wait_for()
    channel.basic_publish("", "busy", b'{"n": 1}')
    page.get_by_text('{"n": 1}').wait_for()
    fast = channel.connection.channel()
    for _ in range(5):
        for number in range(1_000):
            fast.basic_publish("", "busy", b"%d" % number)
    channel.basic_publish("", "busy", b"last")
    page.get_by_text("5,002 messages entered").wait_for()
    page.get_by_text(re.compile(r"[\d,]+ skipped")).wait_for()
    rows = page.locator(".live-message")
    assert rows.count() <= 200
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused.").wait_for()
    page.get_by_label("Selector").fill("message_id = 'wanted'")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("Live. 0 messages entered").wait_for()
    channel.basic_publish("", "busy", b"other")
    wanted = pika.BasicProperties(message_id="wanted")
    channel.basic_publish("", "busy", b"wanted 1", wanted)
    page.get_by_text("wanted 1").click()
    page.locator(".live-message .payload", has_text="wanted 1").wait_for()
    assert rows.count() == 1


def test_dead_letters_are_chosen_and_replayed(signed_in: OpenPage, channel: Any, api: Api) -> None:
    channel.exchange_declare("x.dead", "fanout")
    channel.queue_declare("x.parked")
    channel.queue_bind("x.parked", "x.dead")
    channel.queue_declare("x.jobs", arguments={"x-dead-letter-exchange": "x.dead"})
    channel.queue_declare("x.lost", arguments={"x-dead-letter-exchange": "x.none"})
    for number in range(3):
        channel.basic_publish("", "x.jobs", b'{"n": %d}' % number)
    for method, _, _ in iter(lambda: channel.basic_get("x.jobs"), (None,) * 3):
        channel.basic_reject(method.delivery_tag, requeue=False)
    page = signed_in("#/dead-letters?filter=x.")
    page.get_by_text("1 queue loses dead letters.").wait_for()
    page.get_by_role("link", name="x.parked").click()
    page.get_by_role("row", name=re.compile("Rejected by a consumer x.jobs")).wait_for()
    page.get_by_role("link", name="Show").click()
    page.get_by_role("article").first.wait_for()
    assert page.get_by_role("article").count() == 3
    page.go_back()
    page.get_by_role("button", name="Replay…").click()
    page.get_by_label("Only if").fill("json.n >= 1")
    page.get_by_role("button", name="Choose messages").click()
    heading(page, "2 messages")
    page.get_by_role("button", name="Replay 2 messages…").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay 2 messages").click()
    page.locator(".tile", has_text="replayed").get_by_text("2").wait_for()
    page.get_by_text("Done.").wait_for()
    assert api.get("/api/queues/%2F/x.jobs")["messages"] == 2


def test_a_bulk_action_survives_reload_and_back(
    signed_in: OpenPage, channel: Any, api: Api
) -> None:
    for number in range(30):
        channel.queue_declare(f"bulk.{number}")
    page = signed_in("#/queues?filter=bulk.")
    page.get_by_role("button", name="Act on these 30").click()
    heading(page, "30 queues")
    channel.queue_declare("bulk.later")
    page.reload()
    heading(page, "30 queues")
    page.get_by_text("The first 20 of 30").wait_for()
    page.get_by_label("What to do").select_option("delete")
    page.get_by_role("button", name="Delete 30 queues…").click()
    page.get_by_role("dialog").get_by_text("0 ready messages will be lost").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Delete 30 queues").click()
    page.get_by_text("Done.").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.get_by_role("row", name=re.compile('queues with "bulk."')).get_by_text("done").wait_for()
    page.go_back()
    page.get_by_text("Done.").wait_for()
    page.reload()
    page.get_by_text("Done.").wait_for()
    left = [each["name"] for each in api.get("/api/queues") if each["name"].startswith("bulk.")]
    assert left == ["bulk.later"]


def test_another_decoder_is_chosen(signed_in: OpenPage, channel: Any) -> None:
    channel.queue_declare("shapes")
    channel.basic_publish("", "shapes", b'{"a":1}')
    page = signed_in("#/queues/%2F/shapes?tab=messages")
    body = page.locator(".payload")
    page.locator(".payload", has_text=re.compile(r'^\{\s+"a": 1\s+\}$')).wait_for()
    page.get_by_label("Show the body as").select_option(label="bytes")
    page.get_by_text("7b 22 61 22 3a 31 7d").wait_for()
    page.get_by_label("Show the body as").select_option(label="MessagePack")
    page.get_by_text("This is not MessagePack").wait_for()
    page.get_by_label("Show the body as").select_option(label="text")
    page.locator(".payload", has_text=re.compile(r'^\{"a":1\}$')).wait_for()
    assert body.count() == 1


def test_chosen_messages_are_acted_on(signed_in: OpenPage, channel: Any, api: Api) -> None:
    channel.queue_declare("mixed")
    for number in range(4):
        channel.basic_publish("", "mixed", b'{"n": %d}' % number)
    page = signed_in("#/queues/%2F/mixed?tab=messages")
    page.get_by_label("Selector").fill("json.n > 1")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_role("button", name="Act on all that match…").click()
    heading(page, "2 messages")
    page.get_by_label("What to do").select_option("delete")
    page.get_by_role("button", name="Delete 2 messages…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 2 messages").click()
    page.get_by_text("Done.").wait_for()
    assert api.get("/api/queues/%2F/mixed")["messages"] == 2


def test_a_stream_is_read_from_anywhere(signed_in: OpenPage, channel: Any) -> None:
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(6):
        channel.basic_publish("", "log", b"line %d" % number)
    page = signed_in("#/queues/%2F/log?tab=messages")
    page.get_by_text("line 0").wait_for()
    page.get_by_label("Begin at").select_option("offset")
    page.get_by_label("Offset").fill("4")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("line 0").wait_for(state="detached")
    page.get_by_text("line 4").wait_for()
    assert "offset=4" in page.url
    page.get_by_label("Begin at").select_option("time")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("line 0").wait_for()
    page.get_by_label("Begin at").select_option("next")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("No message").wait_for()


def test_topic_permissions_are_set_and_removed(signed_in: OpenPage, api: Api) -> None:
    assert api.put("/api/users/tom", {"password": "a long one", "tags": ""}) == 201
    page = signed_in("#/users/tom")
    page.get_by_role("button", name="Set topic permission").click()
    page.get_by_label("Topic exchange").fill("orders")
    page.get_by_role("dialog").get_by_label("Write").fill("^order")
    page.get_by_role("dialog").get_by_role("button", name="Set topic permission").click()
    page.get_by_role("row", name=re.compile("orders")).get_by_role("button", name="Remove").click()
    found = api.get("/api/topic-permissions/%2F/tom")
    assert [(each["exchange"], each["write"]) for each in found] == [("orders", "^order")]
    page.get_by_role("button", name="Remove topic permission").click()
    page.get_by_text("No topic permissions.").wait_for()


def test_figures_beside_messages(signed_in: OpenPage, channel: Any) -> None:
    """What RabbitMQ's console shows as well: ports, churn, rates of an exchange, the age of the first message."""
    page = signed_in("#/")
    page.get_by_role("row", name=re.compile("^amqp ")).wait_for()
    page.get_by_role("row", name=re.compile("^Channels")).wait_for()
    channel.exchange_declare("counted", "fanout", auto_delete=False)
    channel.queue_declare("aged")
    channel.queue_bind("aged", "counted")
    channel.basic_publish("counted", "", b"x", pika.BasicProperties(timestamp=1))
    page.get_by_role("link", name="Exchanges").click()
    page.get_by_role("link", name="counted").click()
    page.get_by_role("button", name="Chart").click()
    page.locator("#chart-exchange-rates .plot").wait_for()
    page.locator(".tile", has_text="Out").get_by_text("1 in all").wait_for()
    page.goto(page.url.split("#")[0] + "#/queues/%2F/aged")
    page.locator(".tile", has_text="First message").get_by_text("by its timestamp").wait_for()


MESSAGE_PACK = bytes.fromhex("83a26964cf0020000000000001a46c697374930ac2c0a16bc403010203")


@pytest.mark.parametrize(
    ("body", "properties", "shown"),
    [
        (b'{"id": 12345678901234567890, "t": "x"}', {}, '{\n  "id": 12345678901234567890,'),
        (gzip.compress(b'{"a": [1]}'), {}, '{\n  "a": [\n    1\n  ]\n}'),
        (MESSAGE_PACK, {"content_type": "application/msgpack"}, '"id": "9007199254740993"'),
        (b"a=1&b=%C3%A9", {"content_type": "application/x-www-form-urlencoded"}, "a = 1\nb = é"),
        (b"\x00\xff", {}, "0000  00 ff"),
    ],
    ids=["json", "gzip", "MessagePack", "form", "bytes"],
)
def test_bodies_are_decoded(
    signed_in: OpenPage, body: bytes, properties: dict[str, str], shown: str
) -> None:
    page = signed_in()
    assets = page.evaluate("document.querySelector('script[type=module]').src")
    encoded = json.dumps(list(body))
    found = page.evaluate(
        f"""async (properties) => {{
            const {{ decodeBody }} = await import("{assets}".replace("main.js", "pages/decoders.js"));
            const bytes = new Uint8Array({encoded});
            let message;
            try {{
                const text = new TextDecoder("utf-8", {{ fatal: true }}).decode(bytes);
                message = {{ payload: text, payload_encoding: "string", properties }};
            }} catch {{
                const payload = btoa(String.fromCharCode(...bytes));
                message = {{ payload, payload_encoding: "base64", properties }};
            }}
            return (await decodeBody(message)).text;
        }}""",
        properties,
    )
    assert shown in found
