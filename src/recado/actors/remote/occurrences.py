"""What happened between nodes, as values for whoever listens to the system's events."""

from __future__ import annotations

from recado.actors.occurrences import Occurrence

from .faults import Refusal


class NodeUnreachable(Occurrence):
    """A node that we have to do with has been silent for too long."""

    node: str


class NodeReachable(Occurrence):
    """It speaks again."""

    node: str


class MessageRefused(Occurrence):
    """Another node did not process a message of ours that nobody waits for an answer to."""

    node: str
    reason: Refusal


class FrameRefused(Occurrence):
    """We did not process a frame of somebody else."""

    peer: str  # as the transport knows it: nobody has proved it
    reason: Refusal
