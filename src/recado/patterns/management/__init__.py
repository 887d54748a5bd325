"""System management: observing and changing flows while they run.

control_bus.py        commands to the endpoints of running programs
wire_tap.py           copies for an observer
detour.py             another way for messages, switched on and off
message_history.py    the components that a message has passed
smart_proxy.py        requests and replies that are tracked
test_message.py       messages that try out a running flow
channel_purger.py     removes messages of a queue
parked_messages.py    lists and replays messages that failed
"""

from .channel_purger import purge
from .control_bus import (
    CONTROL_EXCHANGE,
    ControlBus,
    ControlCommand,
    ControlConsole,
    EndpointStatistics,
    PauseEndpoint,
    ProgramState,
    ReadState,
    ResumeEndpoint,
    SetConcurrency,
    SetDetour,
)
from .detour import Detour
from .message_history import HISTORY_HEADER, HistoryEntry, MessageHistory, history_of
from .parked_messages import ParkedMessage, ReplayResult, parked_messages, replay
from .smart_proxy import ProxiedRequest, SmartProxy
from .test_message import TestMessageSeparator, is_test_message, send_test_message
from .wire_tap import WireTap

__all__ = [
    "CONTROL_EXCHANGE",
    "HISTORY_HEADER",
    "ControlBus",
    "ControlCommand",
    "ControlConsole",
    "Detour",
    "EndpointStatistics",
    "HistoryEntry",
    "MessageHistory",
    "ParkedMessage",
    "PauseEndpoint",
    "ProgramState",
    "ProxiedRequest",
    "ReadState",
    "ReplayResult",
    "ResumeEndpoint",
    "SetConcurrency",
    "SetDetour",
    "SmartProxy",
    "TestMessageSeparator",
    "WireTap",
    "history_of",
    "is_test_message",
    "parked_messages",
    "purge",
    "replay",
    "send_test_message",
]
