"""URLs: valid ones, and the errors for invalid ones."""

import pytest

from recado.client.parameters import ConnectionParameters, parse_url


def test_everything_has_a_default() -> None:
    assert parse_url("amqp://") == ConnectionParameters()


def test_every_part_is_read() -> None:
    found = parse_url(
        "amqps://us%40er:p%3Aw%2F@[::1]:1234/a%2Fb?heartbeat=5&connection_timeout=1.5&name=shop"
        "&frame_max=8192&channel_max=9&cafile=/ca.pem&verify=no&certfile=c&keyfile=k"
    )
    assert found == ConnectionParameters(
        host="::1",
        port=1234,
        username="us@er",
        password="p:w/",
        vhost="a/b",
        tls=True,
        heartbeat=5,
        connection_timeout=1.5,
        frame_max=8192,
        channel_max=9,
        name="shop",
        cafile="/ca.pem",
        certfile="c",
        keyfile="k",
        verify=False,
    )


@pytest.mark.parametrize(
    ("url", "vhost"),
    [
        ("amqp://h", "/"),
        ("amqp://h/", "/"),
        ("amqp://h/%2F", "/"),
        ("amqp://h/orders", "orders"),
        ("amqp://h/%2Forders", "/orders"),
    ],
)
def test_vhosts(url: str, vhost: str) -> None:
    assert parse_url(url).vhost == vhost


def test_each_scheme_has_its_port() -> None:
    assert (parse_url("amqp://h").port, parse_url("amqps://h").port) == (5672, 5671)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("localhost:5672", "expected amqp:// or amqps://"),
        ("http://localhost", "unknown URL scheme 'http://'"),
        ("amqp://h:port", "port"),
        ("amqp://h:70000", "port"),
        ("amqp://h/a/b", "write a slash in its name as %2F"),
        ("amqp://h?colour=red", "unknown option 'colour' in the URL; there are heartbeat"),
        ("amqp://h?heartbeat=-1", "invalid heartbeat='-1' in the URL: expected an integer from 0"),
        ("amqp://h?connection_timeout=soon", "a number of seconds greater than 0"),
        ("amqp://h?connection_timeout=0", "a number of seconds greater than 0"),
        ("amqp://h?verify=perhaps", "true or false"),
    ],
)
def test_what_is_wrong_is_named(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("?", r"\?")):
        parse_url(url)


@pytest.mark.parametrize(
    "url", ["amqp://u:secret@h:port", "amqp://u:secret@h/a/b", "x://u:secret@h"]
)
def test_a_password_is_never_told(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


def test_nor_by_the_address_itself() -> None:
    found = parse_url("amqps://u:secret@[::1]:5/v")
    assert str(found) == "amqps://u@[::1]:5/v"
    assert repr(found) == "ConnectionParameters(amqps://u@[::1]:5/v)"
    assert str(parse_url("amqp://h")) == "amqp://guest@h:5672/%2F"
