"""The end of an era: all remaining messages are taken out, one queue after the other.

By basic.get, because only that reports when a queue is empty, and in transactions, so that they are known to be
gone: a message delivered after another crash was resurrected.
"""

from __future__ import annotations

from bench.crash import history as h
from bench.crash import message
from bench.crash.client import CHANNEL, Incarnation, connect
from bench.crash.history import History, Message
from bench.crash.topology import QUEUES
from recado.amqp import methods as m
from recado.amqp.frames import encode_ack_frame

AT_A_TIME = 100


async def drain(incarnation: Incarnation, history: History) -> None:
    client = await connect(incarnation)
    await client.call(m.TxSelect())
    for queue in QUEUES:
        name = queue.name
        empty = False
        while not empty:
            asked = [client.ask(m.BasicGet(name)) for _ in range(AT_A_TIME)]
            taken: list[Message] = []
            for answer in asked:
                method, body = await answer
                if not isinstance(method, m.BasicGetOk):
                    empty = True
                    continue
                which = message.parse(body)
                if which is None:
                    history.add(h.Damaged(name, repr(body[:80])))
                else:
                    consumer = f"drain-{incarnation.number}"
                    history.add(
                        h.Delivered(incarnation.number, consumer, name, which, method.redelivered)
                    )
                    history.add(h.Acked(name, which))
                    taken.append(which)
                client.write(encode_ack_frame(CHANNEL, method.delivery_tag, multiple=False))
            await client.call(m.TxCommit())
            history.add(h.Kept(name, tuple(taken)))
    client.leave()
