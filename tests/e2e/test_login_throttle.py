"""Brute force over AMQP and HTTP with clients of other projects: guesses are throttled, other users log in."""

from __future__ import annotations

import logging

import pika
import pytest
from pika.exceptions import ProbableAuthenticationError

import recado
from recado.server.throttle import FREE_FAILURES_COUNT
from tests.console.http import Api

GUESSES_COUNT = FREE_FAILURES_COUNT * 3


def log_in(port: int, user: str, password: str) -> None:
    credentials = pika.PlainCredentials(user, password)
    pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, credentials=credentials)
    ).close()


def test_guesses_are_throttled_while_another_user_logs_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        guest = Api(broker.management_port)
        guest.put("/api/users/ana", {"password": "right", "tags": "management"})
        with caplog.at_level(logging.WARNING, "recado.server"):
            for number in range(GUESSES_COUNT):
                with pytest.raises(ProbableAuthenticationError):
                    log_in(broker.port, "ana", f"guess {number}")
                log_in(broker.port, "guest", "guest")
        messages = [each.getMessage() for each in caplog.records]
        checked = [each for each in messages if each.startswith("login refused: wrong password")]
        throttled = [each for each in messages if each.startswith("login throttled: too many")]
        assert len(throttled) == 1, "the others are counted"
        assert len(checked) < GUESSES_COUNT - FREE_FAILURES_COUNT
        assert "guess" not in "".join(messages)
        ana = Api(broker.management_port, "ana", "right")
        assert ana.request("GET", "/api/whoami").status == 429, "the throttle is shared"
        assert guest.get("/api/whoami")["name"] == "guest"
