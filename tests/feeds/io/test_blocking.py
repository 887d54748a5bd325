"""Feeds without an event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

import recado.feeds
from recado.feeds.errors import FeedClosedError, JoinError
from recado.feeds.views import View

from .town import FAST


def test_publish_subscribe_and_recover(recado_broker: recado.Broker, tmp_path: Path) -> None:
    views: list[View] = []
    with recado.feeds.connect_blocking(recado_broker.url, options=FAST) as connection:
        feed = connection.feed("quotes")
        with connection.archive("quotes", tmp_path) as archive:
            with feed.subscribe("desk", on_view=views.append) as messages:
                assert feed.publish(b"one", key="k") == 1
                assert feed.publish_many([b"two", b"three"]) == range(2, 4)
                found = []
                for message in messages:
                    found.append(message.body)
                    assert messages.vector == {feed.publisher: len(found)}
                    if len(found) == 3:
                        break
                assert found == [b"one", b"two", b"three"]
                assert messages.view == views[-1]
                with pytest.raises(TimeoutError):
                    messages.next_batch(timeout=0.05)
            feed.flush(timeout=10)
            assert feed.confirmed_sequence == feed.last_sequence == 3
            with feed.subscribe("late", recovery=recado.feeds.Vector()) as messages:
                batch = messages.next_batch(timeout=10)
                assert batch is not None
                assert [message.body for message in batch] == [b"one"]
                assert messages.lost == []
            with pytest.raises(TimeoutError):
                archive.run(timeout=0.05)
            assert archive.vector == {feed.publisher: 3}
        feed.close()


def test_iteration_goes_on_where_it_was_left(recado_broker: recado.Broker) -> None:
    with recado.feeds.connect_blocking(recado_broker.url, options=FAST) as connection:
        feed = connection.feed("quotes")
        with feed.subscribe("desk") as messages:
            feed.publish_many([b"1", b"2", b"3"])
            for expected in (b"1", b"2", b"3"):
                assert next(iter(messages)).body == expected


def test_what_cannot_be(recado_broker: recado.Broker) -> None:
    connection = recado.feeds.connect_blocking(recado_broker.url)
    with pytest.raises(FeedClosedError, match="the connection is not open"):
        connection.feed("quotes")
    with connection:
        feed = connection.feed("quotes")
    with pytest.raises(FeedClosedError, match="the connection is not open"):
        feed.publish(b"late")
    with pytest.raises(JoinError), recado.feeds.connect_blocking("amqp://localhost:1"):
        pass
