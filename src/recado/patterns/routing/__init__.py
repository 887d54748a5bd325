"""Message routing: steps that decide where messages go.

message_selector.py   conditions: selectors and functions of a message
filter.py             pass the messages that match
content_router.py     the destination of the first condition that matches
regex_router.py       the destination of the first pattern that matches the routing key
dynamic_router.py     rules that control messages change
recipient_list.py     copies for several destinations
splitter.py           a message for each part
routing_slip.py       destinations listed in the message

with state:

message_field.py          fields by which messages are grouped
aggregator.py             one message for a group
resequencer.py            messages in the order of their numbers
idempotent_receiver.py    a message that was seen before is dropped
scatter_gather.py         several services are asked, and their replies combined
delayer.py                messages wait for a time
"""

from .aggregator import Aggregator, Combine
from .content_router import ContentRouter
from .delayer import Delayer
from .dynamic_router import DynamicRouter, RoutingRule, RuleChange, RuleRemoval
from .filter import Filter
from .idempotent_receiver import IdempotentReceiver
from .message_field import MessageField
from .message_selector import MessagePredicate, MessageSelector, SelectorLike, to_predicate
from .recipient_list import Recipient, RecipientFunction, RecipientLike, RecipientList
from .regex_router import RegexRouter
from .resequencer import Resequencer
from .routing_slip import ROUTING_SLIP_HEADER, RoutingSlip, attach_routing_slip, routing_slip_of
from .scatter_gather import composed_message_processor, scatter_gather
from .splitter import Splitter

__all__ = [
    "ROUTING_SLIP_HEADER",
    "Aggregator",
    "Combine",
    "ContentRouter",
    "Delayer",
    "DynamicRouter",
    "Filter",
    "IdempotentReceiver",
    "MessageField",
    "MessagePredicate",
    "MessageSelector",
    "Recipient",
    "RecipientFunction",
    "RecipientLike",
    "RecipientList",
    "RegexRouter",
    "Resequencer",
    "RoutingRule",
    "RoutingSlip",
    "RuleChange",
    "RuleRemoval",
    "SelectorLike",
    "Splitter",
    "attach_routing_slip",
    "composed_message_processor",
    "routing_slip_of",
    "scatter_gather",
    "to_predicate",
]
