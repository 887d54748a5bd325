"""Browsers and programs that do what no page does: the chat refuses it, and goes on for the others."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress

import aiohttp
import pytest
from yarl import URL

import recado
from recado.apps.chat import listener, site
from recado.apps.chat import socket as chat_socket
from recado.apps.chat.chat import DEVICES_PER_USER_MAX_COUNT
from recado.apps.chat.device import SENDS_BURST_COUNT
from recado.apps.chat.names import (
    RefusedError,
    check_room_name,
    check_text,
    check_user_name,
)
from recado.apps.chat.read_model import MessagePage, Reader
from recado.apps.chat.server import RunningChat
from recado.apps.chat.socket import FRAME_MAX_BYTES
from recado.client import Properties

from .browser import Browser

NewRoom = Callable[[], str]
SHORT_S = 20.0
"""Much longer than a request takes, and shorter than the tests wait for one that hangs."""

WRITTEN_COUNT = SENDS_BURST_COUNT - 2
WRITTEN_BYTES = 23_970  # of 8,000 characters
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def witness(url: str, room: NewRoom) -> Iterator[None]:
    """After the attack, users still talk."""
    yield

    async def talk() -> None:
        name = room()
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob", (name,))
            await ana.send(f"room:{name}", "still there?")
            await bob.expect_text("still there?")

    asyncio.run(talk())


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize(
    "frame",
    [
        "",
        "null",
        "[]",
        '"send"',
        "{}",
        '{"type": "nonsense"}',
        '{"type": "send"}',
        '{"type": "send", "client_id": 7, "conversation": [], "text": {}}',
        '{"type": "join", "room": null}',
        '{"type": "read", "conversation": "room:x", "position": 1e400}',
        '{"type": "read", "conversation": "room:x", "position": -99999999999999999999999}',
        "[" * 30_000,
        '{"type": "typing", "conversation": "\\ud800"}',
    ],
)
def test_a_malformed_frame_is_answered_with_an_error(url: str, frame: str) -> None:
    async def attack() -> None:
        async with Browser(url) as eve:
            await eve.sign_in("Eve")
            await eve.socket.send_str(frame)
            assert (await eve.expect("error"))["reason"]
            await eve.join("still-here")

    asyncio.run(attack())


@pytest.mark.usefixtures("witness")
def test_other_frames_than_text_and_large_ones_end_the_connection(url: str) -> None:
    async def attack() -> None:
        async with Browser(url) as eve:
            await eve.sign_in("Eve")
            await eve.socket.send_bytes(b'{"type": "join", "room": "x"}')
            assert await is_closed(eve)
            await eve.connect()
            await eve.socket.send_str('"' + "x" * FRAME_MAX_BYTES + '"')
            assert await is_closed(eve)
            await eve.socket.close()
            eve.socket = await eve.http.ws_connect(url + "socket")
            await eve.say("send", client_id="1", conversation="room:x", text="before resume")
            assert "resume" in (await eve.expect("error"))["reason"]

    asyncio.run(attack())


async def is_closed(browser: Browser) -> bool:
    async with asyncio.timeout(30):
        while True:
            received = await browser.socket.receive()
            if received.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
                return True


@pytest.mark.usefixtures("witness")
def test_floods_of_frames_and_of_messages_are_limited(url: str, room: NewRoom) -> None:
    async def attack() -> None:
        name = room()
        async with Browser(url) as eve, Browser(url) as ana:
            await eve.sign_in("Eve", (name,))
            await ana.sign_in("Ana", (name,))
            for number in range(30):
                await eve.say(
                    "send", client_id=f"f{number}", conversation=f"room:{name}", text=f"{number}"
                )
            failed = await eve.expect("failed")
            assert failed["retry"] is True
            with suppress(aiohttp.ClientConnectionResetError):
                for _ in range(1_000):
                    await eve.say("typing", conversation=f"room:{name}")
            assert await is_closed(eve)
            history = await ana.get("api/history", conversation=f"room:{name}", limit="100")
            assert 1 <= len(history["messages"]) < 30

    asyncio.run(attack())


def test_ids_and_authors_cannot_be_forged(url: str, room: NewRoom) -> None:
    async def attack() -> None:
        name, secret = room(), room()
        async with Browser(url) as eve, Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name, secret))
            await bob.sign_in("Bob")
            await eve.sign_in("Eve", (name,))
            await ana.open(bob.id)
            private = await ana.send(f"user:{bob.id}", "for Bob")
            hidden = await ana.send(f"room:{secret}", "not for Eve")
            forged = {"author": {"id": ana.id, "name": "Ana"}, "id": "0" * 32, "position": 1}
            await eve.say(
                "send", client_id="1", conversation=f"room:{name}", text="I am Ana", **forged
            )
            seen = await ana.expect_text("I am Ana")
            assert seen["author"] == {"id": eve.id, "name": "Eve"}

            for conversation in (f"room:{secret}", f"user:{bob.id}", f"private:{ana.id}:{bob.id}"):
                await eve.say("send", client_id="2", conversation=conversation, text="hello")
                assert (await eve.expect("failed"))["retry"] is False
                query = {"conversation": conversation}
                async with eve.http.get(url + "api/history", params=query) as response:
                    assert response.status == 400
                await eve.say("read", conversation=conversation, position=1)
                await eve.expect("error")
                await eve.say("typing", conversation=conversation)
                await eve.expect("error")
            for message_id in (private["id"], hidden["id"]):
                query = {"conversation": f"room:{name}", "around": message_id}
                async with eve.http.get(url + "api/history", params=query) as response:
                    assert response.status == 404
                await eve.say(
                    "send",
                    client_id="3",
                    conversation=f"room:{name}",
                    text="quote",
                    reply_to=message_id,
                )
                await eve.expect("failed")
            await eve.say("open", user="0" * 32)
            await eve.expect("error")
            await eve.say("resume", positions={f"room:{secret}": 0})
            await eve.expect("error")
            await eve.socket.close()
            await eve.connect({f"room:{secret}": 0, f"user:{bob.id}": 0, "nonsense": 0})
            for _ in range(3):
                await eve.expect("left")
            assert all(frame["type"] != "missed" for frame in eve.frames)

    asyncio.run(attack())


def test_a_program_on_the_broker_cannot_put_words_into_a_room(
    running_chat: RunningChat, room: NewRoom
) -> None:
    """DE2: not even with the position of a private message of others."""

    async def attack() -> None:
        url, name = running_chat.url, room()
        async with Browser(url) as ana, Browser(url) as bob, Browser(url) as eve:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob")
            await eve.sign_in("Eve", (name,))
            await ana.open(bob.id)
            private = await ana.send(f"user:{bob.id}", "for Bob")
            async with recado.connect(running_chat.broker_url) as connection:
                channel = await connection.channel()
                for headers in (
                    {"position": private["position"]},
                    {"position": 10**15},
                    {"position": "x", "user_name": "Ana"},
                    {},
                ):
                    forged = Properties(headers={**headers, "user_id": ana.id, "kind": "message"})
                    channel.publish(name, "", b"I am Ana", forged)
                await channel.wait_for_confirms()
            await ana.send(f"room:{name}", "after the attack")
            await eve.expect_text("after the attack")
            texts = [
                each["text"]
                for frame in eve.frames
                for each in [frame.get("message"), *frame.get("messages", ())]
                if each is not None
            ]
            assert texts == []
            history = await eve.get("api/history", conversation=f"room:{name}")
            assert [each["text"] for each in history["messages"]] == ["after the attack"]

    asyncio.run(attack())


def test_markup_stays_text(url: str, room: NewRoom) -> None:
    """The server answers with JSON only; tests of the pages look at what the browser makes of it."""

    async def attack() -> None:
        name = f"{room()}<b>"
        async with Browser(url) as eve:
            await eve.sign_in("<b>Eve</b>", (name,))
            await eve.send(f"room:{name}", MARKUP)
            seen = await eve.expect_text(MARKUP)
            assert seen["author"]["name"] == "<b>Eve</b>"
            query = {"conversation": f"room:{name}"}
            async with eve.http.get(url + "api/history", params=query) as response:
                assert response.content_type == "application/json"
                assert response.headers["x-content-type-options"] == "nosniff"

    asyncio.run(attack())


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "api/session"), ("DELETE", "api/session"), ("POST", "api/link"), ("GET", "socket")],
)
def test_pages_of_other_sites_are_refused(url: str, method: str, path: str) -> None:
    async def attack() -> None:
        async with Browser(url) as ana:
            await ana.sign_in("Ana")
            for headers in (
                {"origin": "http://evil.example"},
                {"origin": "null"},
                {"origin": url.rstrip("/").replace("127.0.0.1", "localhost")},
                {"sec-fetch-site": "cross-site"},
                {"sec-fetch-site": "same-site"},
            ):
                body = '{"name": "Ana"}' if method == "POST" else None
                async with ana.http.request(
                    method, url + path, headers=headers, data=body
                ) as response:
                    assert response.status == 403, headers
            assert (await ana.get("api/session"))["me"]["id"] == ana.id

    asyncio.run(attack())


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"origin": "http://["}, 403), ({"content-encoding": "gzip"}, 400)],
)
def test_odd_headers_are_no_internal_errors(url: str, headers: dict[str, str], status: int) -> None:
    async def attack() -> None:
        async with (
            aiohttp.ClientSession() as http,
            http.post(url + "api/session", data=b'{"name": "Eve"}', headers=headers) as response,
        ):
            assert response.status == status
            assert (await response.json())["reason"]

    asyncio.run(attack())


@pytest.mark.parametrize(
    ("text", "count"),
    [("\0", 0), ("hel\0wor", 0), ("hello\0wor", 1), ('"', 0), ("text:hello", 0), ("hello OR x", 0)],
)
def test_a_search_has_no_syntax(url: str, room: NewRoom, text: str, count: int) -> None:
    async def attack() -> None:
        name = room()
        async with Browser(url) as eve:
            await eve.sign_in("Eve", (name,))
            await eve.send(f"room:{name}", "hello world")
            found = await eve.get("api/search", text=text)
            assert len(found["messages"]) == count

    asyncio.run(attack())


@pytest.mark.parametrize("position", [-1, -(10**40), 10**40])
def test_a_device_resumes_at_an_impossible_position(url: str, room: NewRoom, position: int) -> None:
    async def attack() -> None:
        name = room()
        conversation = f"room:{name}"
        async with Browser(url) as eve:
            await eve.sign_in("Eve", (name,))
            await eve.send(conversation, "hello")
            await eve.socket.close()
            await eve.connect({conversation: position})
            missed = await eve.expect("missed")
            assert missed["more"] == (position > 0)
            assert len(missed["messages"]) == (position < 0)

    asyncio.run(attack())


def test_searches_of_one_user_leave_a_thread_for_the_others(
    url: str, room: NewRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    has_begun = threading.Semaphore(0)

    def search_long(*_: object) -> MessagePage:
        has_begun.release()
        assert is_over.wait(60)
        return MessagePage([], False)

    async def attack() -> None:
        name = room()
        async with Browser(url) as eve, Browser(url) as ana:
            await eve.sign_in("Eve", (name,))
            await ana.sign_in("Ana", (name,))
            monkeypatch.setattr(Reader, "search", search_long)
            searches = [asyncio.create_task(eve.get("api/search", text="x")) for _ in range(3)]
            try:
                assert await asyncio.to_thread(has_begun.acquire, timeout=60)
                async with asyncio.timeout(SHORT_S):
                    for _ in range(3):
                        await ana.get("api/history", conversation=f"room:{name}")
            finally:
                is_over.set()
            await asyncio.gather(*searches)

    asyncio.run(attack())


def test_sessions_are_not_guessed(url: str) -> None:
    async def attack() -> None:
        async with Browser(url) as ana:
            async with ana.http.post(url + "api/session", json={"name": "Ana"}) as response:
                cookie = response.headers["set-cookie"]
                ana.me = (await response.json())["me"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            secret = cookie.partition("=")[2].partition(";")[0]
            assert len(secret) >= 43, "256 bits"
            assert ana.id not in cookie
            async with aiohttp.ClientSession() as other:
                for guess in (secret[:-1], secret + "A", ana.id, "", "%00", "'--", "\xff" * 40):
                    headers = {"cookie": f"recado-chat={guess}"}
                    async with other.get(url + "api/session", headers=headers) as response:
                        assert (await response.json())["me"] is None
                    async with other.get(url + "api/rooms", headers=headers) as response:
                        assert response.status == 401
                async with other.get(url + "link/" + secrets.token_urlsafe(32)) as response:
                    assert response.status == 404

    asyncio.run(attack())


def test_signing_out_ends_the_sockets_of_this_session_only(url: str) -> None:
    async def attack() -> None:
        async with Browser(url) as ana:
            await ana.sign_in("Ana")
            phone = await ana.second_device()
            async with phone, Browser(url, cookies=ana.cookies) as tab:
                await tab.connect()
                secret = ana.cookies.filter_cookies(URL(url))["recado-chat"].value
                headers = {"cookie": f"recado-chat={secret}"}
                async with aiohttp.ClientSession() as http:
                    for status in (200, 401):
                        async with http.delete(url + "api/session", headers=headers) as response:
                            assert response.status == status
                assert await is_closed(ana)
                assert await is_closed(tab)
                await phone.join("still-here")

    asyncio.run(attack())


def test_a_link_for_another_device_works_once(url: str) -> None:
    async def attack() -> None:
        async with Browser(url) as ana, Browser(url) as phone, Browser(url) as eve:
            await ana.sign_in("Ana")
            await eve.sign_in("Eve")
            async with ana.http.post(url + "api/link") as response:
                link = (await response.json())["url"]
            async with eve.http.get(link) as response:  # keeps the session that it has
                assert response.status == 200
            assert (await eve.get("api/session"))["me"]["id"] == eve.id
            async with phone.http.get(link, allow_redirects=False) as response:
                assert (response.status, response.headers["location"]) == (303, "/")
            assert (await phone.get("api/session"))["me"]["id"] == ana.id
            async with Browser(url) as late, late.http.get(link) as response:
                assert response.status == 404

    asyncio.run(attack())


def test_a_link_behind_a_proxy_with_tls_has_its_scheme(url: str) -> None:
    async def attack() -> None:
        async with Browser(url) as ana:
            await ana.sign_in("Ana")
            headers = {"x-forwarded-proto": "https"}
            async with ana.http.post(url + "api/link", headers=headers) as response:
                link = (await response.json())["url"]
            assert link.startswith(url.replace("http://", "https://") + "link/")

    asyncio.run(attack())


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "   ",
            "x" * 41,
            "a\x00b",
            "a\nb",
            "\u202egnp.exe",
            "\u200b",
            "\x7f",
            "\ud800",
            "\u2028",
        ),
        *(
            "A\u200dna",
            "A\ufe0fna",
            "Ana\u200d",
            "🚀\u200d",
            "\u3164",
            "\u2800",
            "A\u034fna",
            "\u1160Ana",
        ),
    ],
)
def test_names_that_deceive_or_disturb_are_refused(url: str, name: str) -> None:
    with pytest.raises(RefusedError):
        check_user_name(name)

    async def attack() -> None:
        async with (
            aiohttp.ClientSession() as http,
            http.post(url + "api/session", data=json.dumps({"name": name})) as response,
        ):
            assert response.status == 400
            assert (await response.json())["field"] == "name"

    asyncio.run(attack())


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (" Ana\u00a0 \u3000Bob ", "Ana Bob"),
        ("Ame\u0301lie", "Amélie"),
        ("👩‍🚀 ❤️‍🔥 👍🏽 1️⃣", "👩‍🚀 ❤️‍🔥 👍🏽 1️⃣"),
        ("श्‍र", "श्‍र"),
    ],
)
def test_names_are_shown_in_one_form(name: str, shown: str) -> None:
    assert check_user_name(name) == shown


@pytest.mark.parametrize(
    "room_name",
    [
        "amq.topic",
        "feed.chat",
        "recado.status",
        "private-messages",
        "",
        "r" * 61,
        "日" * 70,
        "a\tb",
    ],
)
def test_reserved_names_of_rooms_are_refused(url: str, room_name: str) -> None:
    with pytest.raises(RefusedError):
        check_room_name(room_name)

    async def attack() -> None:
        async with Browser(url) as eve:
            await eve.sign_in("Eve")
            await eve.say("join", room=room_name)
            assert (await eve.expect("error"))["field"] == "room"

    asyncio.run(attack())


def test_the_exchange_of_another_program_is_no_room(running_chat: RunningChat) -> None:
    async def attack() -> None:
        async with recado.connect(running_chat.broker_url) as connection:
            channel = await connection.channel()
            await channel.declare_exchange("orders", "direct")
        async with Browser(running_chat.url) as eve:
            await eve.sign_in("Eve")
            await eve.say("join", room="orders")
            assert "orders" in (await eve.expect("error"))["reason"]
            await eve.join("orders-of-eve")

    asyncio.run(attack())


def test_texts_are_limited_and_have_no_control_characters() -> None:
    assert check_text(" a\x00b\x1b[31mc\r\nd\t\ud800 ") == " a b [31mc\nd"
    assert check_text("👩‍🚀 ok") == "👩‍🚀 ok"
    for text in ("", " \n ", "x" * 8_001):
        with pytest.raises(RefusedError):
            check_text(text)


@pytest.mark.usefixtures("witness")
def test_a_browser_that_does_not_read_is_disconnected(
    url: str, room: NewRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SO1: others get their messages meanwhile, and the slow one gets everything when it returns."""
    monkeypatch.setattr(chat_socket, "OUTBOX_MAX_BYTES", 200_000)

    async def attack() -> None:
        name = room()
        conversation = f"room:{name}"
        async with AsyncExitStack() as stack:
            slow = await stack.enter_async_context(Browser(url))
            await slow.sign_in("Slow", (name,))
            writers = [await stack.enter_async_context(Browser(url)) for _ in range(8)]
            for number, writer in enumerate(writers):
                await writer.sign_in(f"writer {number}", (name,))
            await slow.socket.close()
            stubborn = await asyncio.to_thread(open_stubborn, slow)
            try:
                await asyncio.gather(*(write_much(each, conversation) for each in writers))
                received = await asyncio.to_thread(read_to_end, stubborn)
                assert received < len(writers) * WRITTEN_COUNT * WRITTEN_BYTES
            finally:
                stubborn.close()
            await writers[0].send(conversation, "hello")
            await writers[1].expect_text("hello")
            await slow.connect({conversation: 0})
            missed = await slow.expect("missed")
            assert missed["more"], "the page loads the history instead"
            history = await slow.get("api/history", conversation=conversation)
            assert history["messages"][-1]["text"] == "hello"

    asyncio.run(attack())


async def write_much(writer: Browser, conversation: str) -> None:
    for number in range(WRITTEN_COUNT):
        await writer.send(conversation, f"{number} " + "日" * (WRITTEN_BYTES // 3))


def open_stubborn(browser: Browser) -> socket.socket:
    """Return a WebSocket of a user that resumes and never reads; its buffer is small."""
    address = URL(browser.url)
    cookie = browser.cookies.filter_cookies(address)["recado-chat"].value
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.settimeout(60)
    opened.connect((address.host, address.port))
    opened.sendall(
        f"GET /socket HTTP/1.1\r\nhost: {address.host}:{address.port}\r\n"
        f"cookie: recado-chat={cookie}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: c2ltdWxhdGVkIHVzZXIhIQ==\r\n\r\n".encode()
    )
    payload = b'{"type": "resume", "positions": null}'
    opened.sendall(bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload)
    return opened


def read_to_end(stubborn: socket.socket) -> int:
    """Read what was on its way until the server has closed the connection; return the number of bytes."""
    count = 0
    with suppress(ConnectionResetError):
        while data := stubborn.recv(1 << 20):
            count += len(data)
    return count


@pytest.mark.usefixtures("witness")
def test_half_a_request_is_not_waited_for_long(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CHL1: a browser that has sent its request keeps its connection."""
    monkeypatch.setattr(listener, "REQUEST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(site, "BODY_TIMEOUT_S", 0.2)

    async def attack() -> None:
        async with Browser(url) as eve:
            await eve.sign_in("Eve")
            slow_head = b"GET / HTTP/1.1\r\nhost: x\r\nx-"
            slow_body = b"POST /api/session HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"
            for sent, answer in ((b"", b""), (slow_head, b""), (slow_body, b" 408 ")):
                assert answer in await asyncio.to_thread(read_after, URL(url), sent)
            await eve.join("still-here")

    asyncio.run(attack())


def test_a_browser_that_goes_away_is_no_error_of_the_server(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def attack() -> None:
        address = URL(url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"POST /api/session HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        async with Browser(url) as ana:
            await ana.sign_in("Ana")

    asyncio.run(attack())
    assert caplog.text == ""


def read_after(address: URL, sent: bytes) -> bytes:
    """Send a part of a request; return the beginning of the answer, nothing if the connection is closed."""
    with socket.create_connection((address.host, address.port), timeout=60) as opened:
        opened.sendall(sent)
        received = opened.recv(65_536)
        if received:
            opened.sendall(b"}" * 8)  # the rest of the body, which the server waits for
        assert (received == b"") == (b"POST" not in sent)
        return received


def test_the_oldest_device_gives_way_and_the_number_of_browsers_is_limited(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def attack() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(Browser(url))
            await first.sign_in("Ana")
            others = []
            for _ in range(DEVICES_PER_USER_MAX_COUNT):
                other = await stack.enter_async_context(Browser(url, cookies=first.cookies))
                await other.connect()
                others.append(other)
            assert await is_closed(first)
            await others[0].join("still-here")
            monkeypatch.setattr(site, "SOCKETS_MAX_COUNT", 0)
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await others[0].connect()
            assert refused.value.status == 503

    asyncio.run(attack())


def test_a_room_full_of_idle_browsers_does_not_delay_the_others(url: str, room: NewRoom) -> None:
    """Each of 100 browsers gets every message; nine of ten never say anything."""

    async def attack() -> None:
        name = room()
        async with AsyncExitStack() as stack:
            browsers = [await stack.enter_async_context(Browser(url)) for _ in range(100)]
            await asyncio.gather(
                *(each.sign_in(f"user {i}", (name,)) for i, each in enumerate(browsers))
            )
            await asyncio.gather(
                *(each.send(f"room:{name}", f"from {i}") for i, each in enumerate(browsers[:10]))
            )
            for browser in browsers:
                texts = {(await browser.expect("message"))["message"]["text"] for _ in range(10)}
                assert texts == {f"from {number}" for number in range(10)}

    asyncio.run(attack())
