"""The plan of a benchmark: every number of clients, over every transport, with every latency, several times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .figures import TransportKind

CLIENT_COUNTS: Final = (1, 2, 4, 8, 10, 20, 40, 80)
RUN_ASKS_COUNT: Final = 30_000
RUNS_COUNT: Final = 3
QUICK_ASKS_COUNT: Final = 4_800
OWN_BROKER_NAME: Final = "recado"


class InvalidPlanError(ValueError):
    """A plan that cannot be executed."""


@dataclass(frozen=True)
class Trial:
    """One run."""

    transport: TransportKind
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
class BenchmarkPlan:
    clients: Sequence[int] = CLIENT_COUNTS
    transports: Sequence[TransportKind] = (TransportKind.TCP, TransportKind.AMQP)
    latencies_us: Sequence[int] = (0,)
    asks: int = RUN_ASKS_COUNT
    runs: int = RUNS_COUNT
    brokers: Mapping[str, str | None] = field(default_factory=lambda: {OWN_BROKER_NAME: None})
    """The URL of each broker, by name; None for one that is started for the benchmark."""

    def __post_init__(self) -> None:
        for clients in self.clients:
            if clients < 1 or self.asks < clients or self.asks % clients:
                raise InvalidPlanError(
                    f"{self.asks} asks cannot be divided evenly among {clients} clients"
                )
        if self.runs < 1:
            raise InvalidPlanError(f"a plan needs at least one run: {self.runs}")

    def trials(self) -> Iterator[Trial]:
        """Yield the runs in rounds, with those that are compared next to each other: a machine that becomes
        slower affects all of them."""
        for _ in range(self.runs):
            for latency_us in self.latencies_us:
                for clients in self.clients:
                    for transport, broker in self._routes():
                        yield Trial(transport, broker, latency_us, clients, self.asks)

    def _routes(self) -> Iterator[tuple[TransportKind, str | None]]:
        for transport in self.transports:
            match transport:
                case TransportKind.TCP:
                    yield transport, None
                case TransportKind.AMQP:
                    for broker in self.brokers:
                        yield transport, broker

    def __len__(self) -> int:
        return self.runs * len(self.latencies_us) * len(self.clients) * len([*self._routes()])
