"""Messages between nodes survive their encoding: all that a network sends while nodes join and users work."""

from __future__ import annotations

import msgspec

from recado.overlay.command import (
    Action,
    CreateTopic,
    DeliveryMethod,
    GetField,
    Grant,
    Handle,
    Operation,
    Publish,
    SetField,
    Subscribe,
    SubscriptionId,
    TopicMessage,
)
from recado.overlay.identifier import decode_identifier, encode_identifier
from recado.overlay.messages import Messages

from .test_commands import start_network


def test_messages_are_the_same_after_encoding() -> None:
    network = start_network()
    peers = list(network.nodes)
    operations: list[Operation] = [
        CreateTopic(retained_messages_max=2, restricted=True),
        Grant("reader", (Action.READ,)),
        Subscribe(SubscriptionId(peers[1], 1), "body LIKE '%a%'"),
        Subscribe(SubscriptionId(peers[1], 2), None, DeliveryMethod("queue", (("name", "q"),))),
        Publish(TopicMessage(body=b"a", headers={"n": 1, "x": None, "b": True, "f": 0.5})),
        SetField("f", b"x"),
        GetField("f"),
        Handle("count", b"1"),
    ]
    for number, operation in enumerate(operations):
        network.ask(peers[number % 4], "t", operation, ("admin",))
    network.start(3)
    network.run(2.0)
    encoder = msgspec.msgpack.Encoder(enc_hook=encode_identifier)
    decoder = msgspec.msgpack.Decoder(Messages, dec_hook=decode_identifier)
    kinds = set()
    for envelope in network.sent:
        messages = Messages(envelope.messages)
        assert decoder.decode(encoder.encode(messages)) == messages
        kinds |= {type(message).__name__ for message in messages.messages}
    assert {"Append", "Accept", "Decided", "StateChunk", "Commands", "Answers", "Notify"} <= kinds
