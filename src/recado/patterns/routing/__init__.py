"""Message routing: steps that decide where messages go.

message_selector.py   conditions: selectors and functions of a message
filter.py             pass the messages that match
content_router.py     the destination of the first condition that matches
regex_router.py       the destination of the first pattern that matches the routing key
dynamic_router.py     rules that control messages change
recipient_list.py     copies for several destinations
splitter.py           a message for each part
routing_slip.py       destinations listed in the message
"""

from .content_router import ContentRouter
from .dynamic_router import DynamicRouter, RoutingRule, RuleChange, RuleRemoval
from .filter import Filter
from .message_selector import MessagePredicate, MessageSelector, SelectorLike, to_predicate
from .recipient_list import Recipient, RecipientFunction, RecipientLike, RecipientList
from .regex_router import RegexRouter
from .routing_slip import ROUTING_SLIP_HEADER, RoutingSlip, attach_routing_slip, routing_slip_of
from .splitter import Splitter

__all__ = [
    "ROUTING_SLIP_HEADER",
    "ContentRouter",
    "DynamicRouter",
    "Filter",
    "MessagePredicate",
    "MessageSelector",
    "Recipient",
    "RecipientFunction",
    "RecipientLike",
    "RecipientList",
    "RegexRouter",
    "RoutingRule",
    "RoutingSlip",
    "RuleChange",
    "RuleRemoval",
    "SelectorLike",
    "Splitter",
    "attach_routing_slip",
    "routing_slip_of",
    "to_predicate",
]
