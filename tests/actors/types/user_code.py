"""Programs as users write them, with what a type checker says of them beside each line.

    # R: int          mypy reveals that type in this line
    # E: arg-type     mypy finds that error in this line
    nothing           mypy has nothing to say

All begin with EXCHANGE: the messages and the actor that they use.
"""

from __future__ import annotations

EXCHANGE = """
from __future__ import annotations
from collections.abc import Callable
from recado.actors import Actor, ActorRef, ActorSystem, Down, ChildFailed, Future, Message
from recado.actors import OneForOne, Signal, join

class Order(Message[None]):
    number: int
    price: float = 1.0

class Ack(Message[None]):
    order: int

class Place(Message[Ack]):
    order: Order

class Cancel(Message[None]):
    order: int

class Depth(Message[list[int]]):
    pass

class Halt(Message[bool]):
    pass

class Book(Actor[Place | Cancel | Depth]):
    supervision = OneForOne(3, within=10)

    def __init__(self, first: int = 0) -> None:
        self.orders = [first]

    async def receive(self, message: Place | Cancel | Depth) -> None:
        match message:
            case Place(order):
                self.orders.append(order.number)
                self.reply(Ack(order.number))
            case Cancel(number):
                self.become(self.closed)
            case Depth():
                self.reply(self.orders)

    def closed(self, message: Place | Cancel | Depth) -> None:
        self.unhandled(message)
"""

GOOD = {
    "asks": """
        async def main() -> None:
            async with ActorSystem("exchange") as system:
                book = await system.spawn(Book, name="book.A1", supervisor_strategy=OneForOne(3, within=10))
                order = Order(1)
                reveal_type(book)  # R: ActorRef[Place | Cancel | Depth]
                book.tell(Cancel(1))
                reveal_type(await book.ask(Place(order), timeout=2))  # R: Ack
                reveal_type(await book.ask(Depth()))  # R: list[int]
                reveal_type((await book.ask(Place(order), 2.0)).order)  # R: int
                await book.ask(Cancel(1))
                await book.tell_wait(Cancel(1))
        """,
    "returned_answers": """
        class Stall(Actor[Place]):
            def receive(self, message: Place) -> Ack:
                return Ack(message.order.number)

        class SlowStall(Actor[Place]):
            async def receive(self, message: Place) -> Ack:
                return Ack(message.order.number)
        """,
    "futures": """
        async def main(book: ActorRef[Place | Depth]) -> None:
            placed = book.ask_future(Place(Order(1)), timeout=2)
            reveal_type(placed)  # R: Future[Ack]
            reveal_type(await placed)  # R: Ack
            reveal_type(placed.then(lambda ack: ack.order))  # R: Future[int]
            reveal_type(placed.then(lambda ack: book.ask_future(Depth())))  # R: Future[list[int]]
            await join(placed, book.ask_future(Depth()))
        """,
    "ways_to_spawn": """
        from functools import partial

        async def main(system: ActorSystem) -> None:
            reveal_type(await system.spawn(lambda: Book(7)))  # R: ActorRef[Place | Cancel | Depth]
            reveal_type(await system.spawn(partial(Book, 7)))  # R: ActorRef[Place | Cancel | Depth]
            reveal_type(system.actor("book", Book, node="other"))  # R: ActorRef[Place | Cancel | Depth]
            reveal_type(system.ref("recado-actor://other/book"))  # R: ActorRef[Any]
        """,
    "fewer_messages": """
        def only_places(book: ActorRef[Place]) -> None:
            book.tell(Place(Order(1)))

        def main(book: ActorRef[Place | Cancel | Depth]) -> None:
            only_places(book)
            narrow: ActorRef[Cancel] = book
            narrow.tell(Cancel(1))
        """,
    "actors": """
        class Clerk(Actor[Halt]):
            def receive(self, message: Halt) -> None:
                reveal_type(self.ref)  # R: ActorRef[Halt]
                self.reply(True)

        class Desk(Actor[Halt | int]):
            async def pre_start(self) -> None:
                self.clerk = await self.start_link(Clerk, name="clerk")
                reveal_type(self.clerk)  # R: ActorRef[Halt]
                self.monitor(self.clerk)

            async def receive(self, message: Halt | int) -> None:
                if isinstance(message, int):
                    return
                reveal_type(await self.clerk.ask(message))  # R: bool

            def on_signal(self, signal: Signal) -> None:
                match signal:
                    case Down(ref, reason):
                        reveal_type(reason)  # R: BaseException | None
                    case ChildFailed():
                        self.stop()
        """,
    "threads": """
        from recado.actors import blocking

        def main() -> None:
            with blocking.BlockingActorSystem("exchange") as system:
                book = system.spawn(Book, name="book")
                book.tell(Cancel(1))
                reveal_type(book.ask(Place(Order(1)), timeout=2))  # R: Ack

        def in_a_thread(ref: ActorRef[Place | Cancel | Depth]) -> None:
            reveal_type(blocking.ask(ref, Depth(), timeout=2))  # R: list[int]
        """,
    "nodes": """
        from recado.actors.remote.options import RemoteOptions
        from recado.actors.remote.tcp import TcpTransport

        async def main() -> None:
            options = RemoteOptions(cookie="secret", require_cookie=True)
            transport = TcpTransport("127.0.0.1:0", nodes={"exchange": "127.0.0.1:4000"})
            async with ActorSystem("client", transport=transport, options=options) as system:
                book = system.actor("book.A1", Book, node="exchange")
                reveal_type(await book.ask(Place(Order(1)), timeout=2))  # R: Ack
        """,
}

BAD = {
    "wrong_message_told": """
        def main(book: ActorRef[Place | Cancel]) -> None:
            book.tell(Halt())  # E: arg-type
            book.tell("cancel")  # E: arg-type
            book.tell(Order(1))  # E: arg-type
        """,
    "what_is_no_message_asked": """
        async def main(book: ActorRef[Place | Cancel]) -> None:
            await book.ask("depth")  # E: arg-type
            book.ask_future(7)  # E: arg-type
        """,
    "answer_taken_for_another": """
        async def main(book: ActorRef[Place | Depth]) -> None:
            wrong: int = await book.ask(Place(Order(1)))  # E: arg-type
            (await book.ask(Place(Order(1)))).price  # E: attr-defined
            names: list[str] = await book.ask(Depth())  # E: arg-type
        """,
    "await_forgotten": """
        async def main(book: ActorRef[Place]) -> None:
            book.ask(Place(Order(1))).order  # E: attr-defined
            book.ask(Place(Order(1)))  # E: unused-coroutine
        """,
    "message_changed": """
        def main(order: Order) -> None:
            order.price = 2.0  # E: misc
        """,
    "message_made_wrongly": """
        def main() -> None:
            Place("order")  # E: arg-type
            Place()  # E: call-arg
            Order(1, 1.0, 2)  # E: call-arg
            Order(amount=1)  # E: call-arg
        """,
    "reference_to_who_takes_less": """
        def cancel(book: ActorRef[Place | Cancel]) -> None:
            book.tell(Cancel(1))

        def main(book: ActorRef[Place]) -> None:
            cancel(book)  # E: arg-type
        """,
    "no_actor_spawned": """
        async def main(system: ActorSystem) -> None:
            await system.spawn(Order)  # E: arg-type
            await system.spawn(Book())  # E: arg-type
            await system.spawn(Book, supervisor_strategy="one for one")  # E: arg-type
        """,
    "behaviour_of_other_messages": """
        class Shop(Actor[Place | Cancel]):
            def receive(self, message: Halt) -> None:  # E: override
                pass
        """,
    "case_forgotten": """
        from typing import assert_never

        class Shop(Actor[Place | Cancel]):
            def receive(self, message: Place | Cancel) -> None:
                match message:
                    case Place():
                        pass
                    case other:
                        assert_never(other)  # E: arg-type
        """,
    "reference_changed": """
        def main(book: ActorRef[Place]) -> None:
            book.address = book.address  # E: misc
        """,
    "wrong_kind_of_another_node": """
        def main(system: ActorSystem) -> None:
            system.actor("book", Book, node="other").tell(Halt())  # E: arg-type
            system.actor("book", Order, node="other")  # E: arg-type
        """,
    "wrong_options": """
        from recado.actors.remote.options import RemoteOptions
        from recado.actors.remote.tcp import TcpTransport

        def main() -> None:
            RemoteOptions(serializer="pickle")  # E: arg-type
            RemoteOptions(compression="zip")  # E: arg-type
            RemoteOptions(cookies="")  # E: call-arg
            ActorSystem("client", transport=TcpTransport(), options="secret")  # E: misc
        """,
}

# What Python's types cannot say: that a message is one of the actor's *and* knows its answer. It is said when
# it is handled, by Unhandled.
NOT_SEEN = {
    "message_asked_that_the_actor_does_not_take": """
        async def main(book: ActorRef[Place]) -> None:
            reveal_type(await book.ask(Halt()))  # R: bool
        """,
}
