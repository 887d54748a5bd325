"""Two people write while the network is cut, lossy or away, and the broker killed: nothing is lost or doubled."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from recado.apps.chat.server import RunningChat, ServerOptions
from workshop import peers
from workshop.peers import free_ports

from ..conftest import chat_in_thread
from .conftest import LOST_CONNECTION, Person, SignIn
from .wire import Wire, wire_to

EMPTY_FOR_THE_SERVER = "\x1f"
"""A separator of ASCII is white space for Python, not for JavaScript: the page sends it, and the server refuses it."""

HISTORY = """async (conversation) => {
    const query = new URLSearchParams({ conversation, limit: 200 });
    return (await (await fetch(`api/history?${query}`)).json()).messages.map((each) => each.text);
}"""


class KillableBroker:
    """A durable broker at one port."""

    def __init__(self, data: Path) -> None:
        self._data = data
        (self.port,) = free_ports(1)
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def start(self) -> None:
        broker = peers.recado(port=self.port, data=self._data, stop=signal.SIGKILL)
        self._stack.enter_context(broker)

    def kill(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableBroker]:
    broker = KillableBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def chat(broker: KillableBroker) -> Iterator[RunningChat]:
    with chat_in_thread(ServerOptions(url=broker.url)) as running:
        yield running


@pytest.fixture
def wire(chat: RunningChat) -> Iterator[Wire]:
    with wire_to(chat.url) as wire:
        yield wire


def history(person: Person, room: str) -> list[str]:
    """The messages that the server has of a room."""
    found: list[str] = person.page.evaluate(HISTORY, f"room:{room}")
    return found


def check_all(people: dict[str, Person], room: str, count: int) -> None:
    """Everybody has written `count` messages: all see each of them once, in one order, and in that of their authors."""
    for person in people.values():
        for stem in people:
            person.see(f"{stem} {count - 1}")
        person.page.locator(".message:not(.sent)").first.wait_for(state="detached")
    first = next(iter(people.values()))
    stored = history(first, room)
    for stem in people:
        own = [each for each in stored if each.startswith(stem)]
        assert own == [f"{stem} {number}" for number in range(count)]
    assert len(stored) == len(people) * count
    for person in people.values():
        assert person.texts() == stored


def test_a_lossy_network_loses_and_doubles_nothing(sign_in: SignIn, wire: Wire, room: str) -> None:
    """Connections are cut after a message was sent: it is lost, or arrives and its answer is lost, or neither."""
    ana = sign_in("Ana", room, url=wire.address, expected=LOST_CONNECTION)
    ion = sign_in("Ion", room)
    for number in range(8):
        wire.is_deaf = number % 4 == 1
        wire.is_mute = number % 4 == 2
        ana.write(f"ana {number}")
        ion.write(f"ion {number}")
        if wire.is_deaf:
            ion.see(f"ana {number}")
        if wire.is_deaf or wire.is_mute:
            ana.page.locator(".message.sending").first.wait_for()
        with ana.page.expect_websocket():
            wire.cut()
            wire.is_deaf = wire.is_mute = False
        ana.page.locator(".status.live").wait_for(state="attached")
    check_all({"ana": ana, "ion": ion}, room, 8)


def test_what_is_written_offline_is_sent_later(sign_in: SignIn, wire: Wire, room: str) -> None:
    ana = sign_in("Ana", room, url=wire.address, expected=LOST_CONNECTION)
    ion = sign_in("Ion", room)
    ana.write("ana 0")
    ion.see("ana 0")
    ion.write("ion 0")
    ana.see("ion 0")
    ana.page.context.set_offline(True)
    ana.page.get_by_text("You are offline.").wait_for()
    for number in range(1, 5):
        ana.write(f"ana {number}")
        ion.write(f"ion {number}")
    ana.page.get_by_role("img", name="Waiting to be sent").nth(3).wait_for()
    ion.see("ion 4")
    ana.page.context.set_offline(False)
    check_all({"ana": ana, "ion": ion}, room, 5)
    assert ana.page.get_by_text("You are offline.").count() == 0
    assert ana.page.evaluate("Object.keys(localStorage).filter(each => /outbox/.test(each))") == []


def test_a_killed_broker_delays_messages_and_loses_none(
    sign_in: SignIn, broker: KillableBroker, room: str
) -> None:
    ana, ion = sign_in("Ana", room), sign_in("Ion", room)
    ana.write("ana 0")
    ion.write("ion 0")
    ana.see("ion 0")
    broker.kill()
    try:
        ana.page.get_by_text("The broker is not reachable.").wait_for()
        for number in range(1, 4):
            ana.write(f"ana {number}")
            ion.write(f"ion {number}")
        ana.page.locator(".message:not(.sent)").nth(2).wait_for()
        ana.page.reload()
        ana.page.locator(".message:not(.sent)").nth(2).wait_for()
    finally:
        broker.start()
    check_all({"ana": ana, "ion": ion}, room, 4)
    ana.page.get_by_text("The broker is not reachable.").wait_for(state="detached")


def test_a_failed_message_holds_back_those_after_it(sign_in: SignIn, room: str) -> None:
    ana = sign_in("Ana", room)
    ana.write(EMPTY_FOR_THE_SERVER)
    ana.page.get_by_text("Not sent.").wait_for()
    ana.write("Second")
    ana.page.locator(".message.waiting", has_text="Second").wait_for()
    ana.page.get_by_role("button", name="Try again").click()
    ana.page.get_by_text("Not sent.").wait_for()
    ana.page.reload()
    ana.page.get_by_text("Not sent.").wait_for()
    ana.page.get_by_role("button", name="Discard").click()
    ana.see("Second")
    assert history(ana, room) == ["Second"]

    ana.write(EMPTY_FOR_THE_SERVER)
    ana.page.get_by_text("Not sent.").wait_for()
    ana.field.press("ArrowUp")
    ana.page.get_by_text("Edit your message").wait_for()
    ana.write("Third")
    ana.see("Third")
    assert history(ana, room) == ["Second", "Third"]


def test_the_pages_of_a_user_whom_the_chat_has_forgotten_ask_for_a_name(sign_in: SignIn) -> None:
    ana = sign_in("Ana")
    ana.page.context.clear_cookies()
    ana.page.evaluate("dispatchEvent(new Event('offline'))")
    ana.page.get_by_label("Name").wait_for()


def test_a_reload_doubles_nothing_whose_answer_was_lost(
    sign_in: SignIn, wire: Wire, room: str
) -> None:
    ana = sign_in("Ana", room, url=wire.address, expected=LOST_CONNECTION)
    ion = sign_in("Ion", room)
    wire.is_deaf = True
    ana.write("Once")
    ion.see("Once")
    ana.page.locator(".message.sending").wait_for()
    wire.cut()
    wire.is_deaf = False
    ana.page.reload()
    ana.see("Once")
    ana.wait_until("!Object.keys(localStorage).some(each => /outbox/.test(each))")
    assert ana.texts() == history(ana, room) == ["Once"]
