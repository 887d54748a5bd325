"""What is to be measured: every number of clients, over every transport, on every network, several times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .figures import Transport

CLIENTS: Final = (1, 2, 4, 8, 10, 20, 40, 80)
ASKS: Final = 30_000
RUNS: Final = 3
QUICK_ASKS: Final = 4_800
OWN_BROKER: Final = "recado"


class BadPlan(ValueError):
    """Something that cannot be measured."""


@dataclass(frozen=True)
class Trial:
    """One run."""

    transport: Transport
    broker: str | None
    latency_us: int
    clients: int
    asks: int

    @property
    def label(self) -> str:
        over = f"{self.transport.value}, {self.broker}" if self.broker else self.transport.value
        many = "client" if self.clients == 1 else "clients"
        return f"{over}, {self.latency_us / 1000:g} ms, {self.clients} {many}"


@dataclass(frozen=True)
class Plan:
    clients: Sequence[int] = CLIENTS
    transports: Sequence[Transport] = (Transport.TCP, Transport.AMQP)
    latencies_us: Sequence[int] = (0,)
    asks: int = ASKS
    runs: int = RUNS
    brokers: Mapping[str, str | None] = field(default_factory=lambda: {OWN_BROKER: None})
    """By name, the URL of each; None is one that is started for the purpose."""

    def __post_init__(self) -> None:
        for clients in self.clients:
            if clients < 1 or self.asks < clients or self.asks % clients:
                raise BadPlan(f"{self.asks} asks cannot be shared evenly by {clients} clients")
        if self.runs < 1:
            raise BadPlan("at least one run")

    def trials(self) -> Iterator[Trial]:
        """Round by round, and what is compared side by side: a machine that gets slower does so for all."""
        for _ in range(self.runs):
            for latency_us in self.latencies_us:
                for clients in self.clients:
                    for transport, broker in self._ways():
                        yield Trial(transport, broker, latency_us, clients, self.asks)

    def _ways(self) -> Iterator[tuple[Transport, str | None]]:
        for transport in self.transports:
            match transport:
                case Transport.TCP:
                    yield transport, None
                case Transport.AMQP:
                    for broker in self.brokers:
                        yield transport, broker

    def __len__(self) -> int:
        return self.runs * len(self.latencies_us) * len(self.clients) * len([*self._ways()])
