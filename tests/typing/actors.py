"""Types of `recado.actors`: messages carry the type of their reply, references the messages of their actor."""

from typing import assert_type

from recado.actors import Actor, ActorRef, ActorSystem, Message


class Greet(Message[str]):
    name: str


class Count(Message[int]):
    pass


class Other(Message[None]):
    pass


class Greeter(Actor[Greet | Count]):
    def receive(self, message: Greet | Count) -> None:
        match message:
            case Greet(name):
                self.reply(f"Hello, {name}!")
            case Count():
                self.reply(1)


async def program() -> None:
    async with ActorSystem("example") as system:
        greeter = await system.spawn(Greeter)
        assert_type(greeter, ActorRef[Greet | Count])
        assert_type(await greeter.ask(Greet("Ana"), timeout=2.0), str)
        assert_type(await greeter.ask(Count()), int)
        greeter.tell(Greet("Ana"))

        greeter.tell(Other())  # type: ignore[arg-type]
        await greeter.ask("Ana")  # type: ignore[arg-type]
        await system.spawn(5)  # type: ignore[arg-type]
