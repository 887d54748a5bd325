"""System management: observing and changing flows while they run.

wire_tap.py           copies for an observer
detour.py             another way for messages, switched on and off
message_history.py    the components that a message has passed
smart_proxy.py        requests and replies that are tracked
"""

from .detour import Detour
from .message_history import HISTORY_HEADER, HistoryEntry, MessageHistory, history_of
from .smart_proxy import ProxiedRequest, SmartProxy
from .wire_tap import WireTap

__all__ = [
    "HISTORY_HEADER",
    "Detour",
    "HistoryEntry",
    "MessageHistory",
    "ProxiedRequest",
    "SmartProxy",
    "WireTap",
    "history_of",
]
