"""Stand-ins for classes that the routing tests do not test."""

from recado.broker.arguments import QueueSettings


class StandInQueue:
    """The part of a queue that routing uses."""

    def __init__(
        self, name: str, settings: QueueSettings | None = None, owner: object | None = None
    ) -> None:
        self.name = name
        self.declared_settings = settings or QueueSettings()
        self.owner = owner
        self.stores_bindings = self.has_stored_bindings = (
            self.declared_settings.durable and not self.declared_settings.exclusive
        )
        self.deleted = False

    def __repr__(self) -> str:
        return self.name
