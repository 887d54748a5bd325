"""Login: passwords, client addresses, timeouts, and connection limits."""

import asyncio

import pytest
from argon2 import PasswordHasher

from recado.amqp.frames import PROTOCOL_HEADER
from recado.amqp.methods import (
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    QueueDeclare,
    QueueDeclareOk,
)
from recado.broker.access import User
from recado.server import passwords
from recado.server.certificate_login import CertificateLogin
from recado.server.connection import Connection
from recado.server.options import ConnectionOptions
from recado.server.server import Server
from recado.server.throttle import FREE_FAILURES_COUNT, WAIT_FIRST_S, LoginThrottledError

from .client import ALL_CAPABILITIES, EVERYTHING, new_broker
from .harness import GUEST, Guest, in_the_loop, new_server, skip, soon, turns

CERTIFICATES = ConnectionOptions(certificate_login=CertificateLogin("common_name"))
SLOW = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")


@pytest.mark.parametrize(
    "peer",
    [("127.0.0.1", 1), ("127.9.9.9", 1), ("::1", 1, 0, 0), ("::ffff:127.0.0.1", 1), "/socket"],
)
@in_the_loop
async def test_guest_comes_from_this_machine(peer: object) -> None:
    guest = Guest(new_server(), peer)
    assert await guest.greet() is None
    assert await guest.call(QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]


@pytest.mark.parametrize("peer", [("10.0.0.1", 1), ("12.7.0.1", 1), ("::2", 1, 0, 0)])
@in_the_loop
async def test_guest_does_not_come_from_elsewhere(
    peer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is it told the reason; newer clients are."""
    server = new_server(new_broker(GUEST, User("ada", GUEST.password_hash, (), {"/": EVERYTHING})))
    guest = Guest(server, peer)
    close = await guest.greet()
    assert close is not None
    assert close.reply_code == 403
    assert "localhost" not in close.reply_text
    assert "login refused: user is limited to localhost (peer=" in caplog.text
    await turns()
    assert guest.wire.ended
    assert await Guest(server, peer).greet("ada") is None


@pytest.mark.parametrize(
    "stored",
    [GUEST.password_hash, SLOW, "no hash at all", "$argon2nonsense"],
    ids=["salted", "slow", "none", "nonsense"],  # a salt is new each time
)
@in_the_loop
async def test_a_wrong_password_and_a_wrong_name_look_alike(stored: str) -> None:
    server = new_server(new_broker(User("guest", stored, (), {"/": EVERYTHING})))
    refusals = [
        await Guest(server).greet("guest", b"wrong"),
        await Guest(server).greet("nobody", b"secret"),
    ]
    assert refusals[0] == refusals[1]
    assert refusals[0] is not None


@in_the_loop
async def test_slow_passwords_are_checked_in_a_thread_and_remembered() -> None:
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    assert await Guest(server).greet() is None
    again = Guest(server)
    opening = asyncio.ensure_future(again.greet())
    await turns(20)  # no thread could have answered
    assert opening.done()
    assert opening.result() is None


@in_the_loop
async def test_a_handshake_that_is_sent_at_once_waits_for_the_password() -> None:
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    guest = Guest(server)
    guest.feed(PROTOCOL_HEADER)
    await turns()
    assert [method.name for method in guest.methods()] == ["connection.start"]
    start_ok = ConnectionStartOk({}, "PLAIN", b"\0guest\0secret")
    guest.send((0, start_ok), (0, ConnectionTuneOk()), (0, ConnectionOpen("/")), (1, ChannelOpen()))
    assert not guest.wire.reading
    await soon(guest.wire.wrote.wait())
    await turns()
    answers = [method.name for method in guest.methods()]
    assert answers == ["connection.tune", "connection.open-ok", "channel.open-ok"]
    assert guest.wire.reading


@in_the_loop
async def test_an_unknown_name_takes_as_long_as_a_wrong_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[tuple[str, bytes]] = []

    def check(password_hash: str, password: bytes) -> bool:
        checked.append((password_hash, password))
        return True

    monkeypatch.setattr(passwords, "_check_argon2", check)
    quick = User("quick", GUEST.password_hash, (), {"/": EVERYTHING})
    server = new_server(new_broker(quick, User("slow", SLOW, (), {"/": EVERYTHING})))
    close = await Guest(server).greet("nobody", b"guess")
    assert close is not None, "it is nobody's password, even if it is somebody's"
    assert checked == [(SLOW, b"guess")]


@pytest.mark.parametrize("protocol", ["amqp", "http"])
@pytest.mark.parametrize("before", ["slow", None])
@pytest.mark.parametrize("after", ["slow", "quick", None])
@in_the_loop
async def test_users_that_change_while_a_password_is_checked(
    before: str | None, after: str | None, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the password that the user has at the end of the check counts."""
    hashes = {"slow": SLOW, "quick": GUEST.password_hash}
    broker = new_broker(User("other", SLOW, (), {"/": EVERYTHING}))
    server = new_server(broker)

    def set_user(kind: str | None) -> None:
        if kind is not None:
            broker.add_user(User("ana", hashes[kind], (), {"/": EVERYTHING}))
        elif "ana" in broker.users:
            broker.delete_user("ana")

    def check(password_hash: str, password: bytes) -> bool:
        server.loop.call_soon_threadsafe(set_user, after)
        return True

    monkeypatch.setattr(passwords, "_check_argon2", check)
    set_user(before)
    if protocol == "amqp":
        is_accepted = await Guest(server).greet("ana") is None
    else:
        is_accepted = await server.authenticator.check("ana", b"secret", "127.0.0.1") is not None
    assert is_accepted is (before == after == "slow")


@pytest.mark.parametrize("is_deleted", [True, False])
@in_the_loop
async def test_users_that_change_during_the_handshake(is_deleted: bool) -> None:
    broker = new_broker(GUEST)
    guest = Guest(new_server(broker))
    guest.feed(PROTOCOL_HEADER)
    guest.send((0, ConnectionStartOk({}, "PLAIN", b"\0guest\0secret")), (0, ConnectionTuneOk()))
    await turns()
    guest.methods()
    if is_deleted:
        broker.delete_user("guest")
    else:
        broker.add_user(User("guest", GUEST.password_hash))
    guest.send((0, ConnectionOpen("/")))
    await turns()
    [close] = guest.methods()
    assert "access to vhost '/' refused for user 'guest'" in str(close)


@in_the_loop
async def test_not_too_many_wait_for_their_passwords() -> None:
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    guests = [Guest(server) for _ in range(70)]
    results = await asyncio.gather(*(guest.greet() for guest in guests))
    refused = [result for result in results if result is not None]
    assert 0 < len(refused) <= 6
    assert all(close.reply_code == 403 for close in refused)


@in_the_loop
async def test_passwords_of_disconnected_clients_are_not_checked() -> None:
    """Two are checked at a time."""
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    guests = [Guest(server) for _ in range(20)]
    openings = [asyncio.ensure_future(guest.greet()) for guest in guests]
    await turns(3)
    leaver = guests[-1]
    leaver.wire.abort()
    await soon(asyncio.gather(*openings[:-1]))
    assert leaver.methods() == []
    assert server.connections == {guest.protocol for guest in guests[:-1]}
    openings[-1].cancel()


@in_the_loop
async def test_without_a_refusal_the_socket_closes() -> None:
    guest = Guest(new_server())
    opening = asyncio.ensure_future(guest.greet(password=b"wrong", capabilities={}))
    await turns()
    states = [guest.wire.open]
    await skip(1)
    states.append(guest.wire.open)
    assert states == [True, False]
    assert guest.methods() == []
    opening.cancel()


@in_the_loop
async def test_a_handshake_takes_ten_seconds_at_most(caplog: pytest.LogCaptureFixture) -> None:
    """In all: bytes that trickle in do not prolong it."""
    server = new_server()
    slow, quick = Guest(server), Guest(server)
    await quick.greet()
    for octet in PROTOCOL_HEADER:
        slow.feed(bytes((octet,)))
        await skip(1.2)
    assert slow.wire.open
    await skip(1.2)
    assert slow.wire.aborted
    assert "closing connection: handshake timed out" in caplog.text
    assert quick.wire.open
    assert server.connections == {quick.protocol}


@in_the_loop
async def test_another_protocol_is_answered_with_ours_and_the_socket_closes() -> None:
    guest = Guest(new_server())
    guest.feed(b"GET / HTTP/1.1\r\n\r\n")
    await turns()
    assert guest.wire.written == PROTOCOL_HEADER
    assert guest.wire.ended


async def present(server: Server, name: str, peer: object) -> str:
    """Log in with a certificate; return the name of the answer."""
    guest = Guest(server, peer, certificate={"subject": ((("commonName", name),),)})
    guest.feed(PROTOCOL_HEADER)
    await turns()
    guest.methods()
    guest.send((0, ConnectionStartOk({"capabilities": ALL_CAPABILITIES}, "EXTERNAL", b"")))
    await turns()
    [answer] = guest.methods()
    return answer.name


@in_the_loop
async def test_a_certificate_does_not_lift_the_limit_to_localhost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server(offer=CERTIFICATES)
    assert await present(server, "guest", ("127.0.0.1", 1)) == "connection.tune"
    assert await present(server, "guest", ("10.0.0.1", 1)) == "connection.close"
    assert "login refused: user is limited to localhost (peer=10.0.0.1" in caplog.text


@in_the_loop
async def test_certificates_are_not_throttled() -> None:
    """They cannot be guessed, and a refused one does not delay the passwords of the same user."""
    server = new_server(offer=CERTIFICATES)
    answers = {await present(server, "eve", ("127.0.0.1", 1)) for _ in range(200)}
    assert answers == {"connection.close"}
    assert await present(server, "guest", ("127.0.0.1", 1)) == "connection.tune"
    assert await Guest(server).greet() is None


# ── throttling ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stored", [GUEST.password_hash, SLOW], ids=["salted", "slow"])
@in_the_loop
async def test_guesses_are_throttled_without_checking_them(
    stored: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even the right password is accepted before the wait is over."""
    ada = User("ada", GUEST.password_hash, (), {"/": EVERYTHING})
    server = new_server(new_broker(User("guest", stored, (), {"/": EVERYTHING}), ada))
    refusals = [await Guest(server).greet(password=b"wrong") for _ in range(FREE_FAILURES_COUNT)]
    assert "login throttled" not in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(passwords.PasswordChecker, "check_now", None)
        patch.setattr(passwords, "_check_argon2", None)
        refusals.append(await Guest(server).greet())
    assert "login throttled: too many failures (peer=127.0.0.1 user='guest' wait_s=" in caplog.text
    assert refusals == [refusals[0]] * len(refusals)
    assert await Guest(server).greet("ada") is None
    await skip(WAIT_FIRST_S)
    assert await Guest(server).greet() is None


@in_the_loop
async def test_guesses_that_wait_for_a_thread_are_throttled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most two are checked beyond the free ones, though all arrived before the first was refused."""
    checked: list[bytes] = []

    def check(_: str, password: bytes) -> bool:
        checked.append(password)
        return False

    monkeypatch.setattr(passwords, "_check_argon2", check)
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    refusals = await asyncio.gather(*(Guest(server).greet() for _ in range(40)))
    assert all(each is not None for each in refusals)
    assert FREE_FAILURES_COUNT <= len(checked) <= FREE_FAILURES_COUNT + 2


@in_the_loop
async def test_other_protocols_share_the_throttle(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()
    for _ in range(FREE_FAILURES_COUNT):
        await Guest(server).greet(password=b"wrong")
    with pytest.raises(LoginThrottledError):
        await server.authenticator.check("guest", b"secret", "127.0.0.1")
    assert "login throttled: too many failures (peer=127.0.0.1 user='guest'" in caplog.text
    await skip(WAIT_FIRST_S)
    assert await server.authenticator.check("guest", b"secret", "127.0.0.1") == GUEST


# ── many ──────────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_a_full_server_says_so() -> None:
    server = new_server(max_connections=2)
    guests = [Guest(server) for _ in range(2)]
    for guest in guests:
        assert await guest.greet() is None
    close = await Guest(server).greet()
    assert close is not None
    assert close.reply_text == "NOT_ALLOWED - the server is full: it takes 2 connections"
    guests[0].protocol.connection_lost(None)
    (one_more,) = [each for each in server.connections if each is not guests[1].protocol]
    one_more.connection_lost(None)
    assert await Guest(server).greet() is None


@in_the_loop
async def test_connections_that_are_accepted_together_are_counted() -> None:
    """The loop accepts all that have come, and then connects one after the other."""
    server = new_server(max_connections=2)
    accepted = [Connection(server) for _ in range(4)]
    answers = [await Guest(server, protocol=each).greet() for each in accepted]
    assert [answer is None for answer in answers] == [True, True, False, False]


@in_the_loop
async def test_an_overrun_server_turns_away_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server(max_connections=2)
    guests = [Guest(server) for _ in range(105)]
    assert [guest.wire.aborted for guest in guests].count(True) == 3
    await skip(1)
    assert "connections aborted: far too many connections (count=3 " in caplog.text
    assert len(server.connections) == 102
