"""Enterprise integration patterns for any AMQP 0-9-1 broker.

messaging                                                         the application: endpoints, publishing, requests
publisher, requester, endpoint, processor, tap                    what it runs
handler, encoder, declaration, retry, failure, delay              what they are made of
message, message_sequence, destination, return_address, errors    values
step                                                              the unit of which flows are composed
routing/                                                          steps that decide where messages go
management/                                                       steps that observe and control
translation/                                                      objects to bodies and back, by content type
"""

from .destination import Destination, DestinationLike, LogStream, PointToPoint, PublishSubscribe
from .errors import (
    CompositionError,
    HandlerTimeoutError,
    MessagingError,
    NotConfirmedError,
    RejectMessageError,
    ReplyError,
    RequestTimeoutError,
    StateError,
    TranslationError,
    UnknownContentTypeError,
    UnroutableMessageError,
)
from .harness import HandledMessage, Harness, PublishedMessage
from .interceptor import Interceptor
from .management import (
    HISTORY_HEADER,
    Detour,
    HistoryEntry,
    MessageHistory,
    ProxiedRequest,
    SmartProxy,
    WireTap,
    history_of,
)
from .message import DeliveryInfo, Message
from .message_sequence import MessageSequence, begin_sequence, end_sequence, sequence_of
from .messaging import Health, Messaging
from .retry import Retry
from .routing import (
    ROUTING_SLIP_HEADER,
    ContentRouter,
    DynamicRouter,
    Filter,
    MessagePredicate,
    MessageSelector,
    Recipient,
    RecipientFunction,
    RecipientLike,
    RecipientList,
    RegexRouter,
    RoutingRule,
    RoutingSlip,
    RuleChange,
    RuleRemoval,
    SelectorLike,
    Splitter,
    attach_routing_slip,
    routing_slip_of,
    to_predicate,
)
from .step import (
    AnyFlowStep,
    AsyncOutputs,
    FlowStep,
    Output,
    Outputs,
    Send,
    StatefulStep,
    StateTransaction,
)
from .translation import Translator, Translators

__all__ = [
    "HISTORY_HEADER",
    "ROUTING_SLIP_HEADER",
    "AnyFlowStep",
    "AsyncOutputs",
    "CompositionError",
    "ContentRouter",
    "DeliveryInfo",
    "Destination",
    "DestinationLike",
    "Detour",
    "DynamicRouter",
    "Filter",
    "FlowStep",
    "HandledMessage",
    "HandlerTimeoutError",
    "Harness",
    "Health",
    "HistoryEntry",
    "Interceptor",
    "LogStream",
    "Message",
    "MessageHistory",
    "MessagePredicate",
    "MessageSelector",
    "MessageSequence",
    "Messaging",
    "MessagingError",
    "NotConfirmedError",
    "Output",
    "Outputs",
    "PointToPoint",
    "ProxiedRequest",
    "PublishSubscribe",
    "PublishedMessage",
    "Recipient",
    "RecipientFunction",
    "RecipientLike",
    "RecipientList",
    "RegexRouter",
    "RejectMessageError",
    "ReplyError",
    "RequestTimeoutError",
    "Retry",
    "RoutingRule",
    "RoutingSlip",
    "RuleChange",
    "RuleRemoval",
    "SelectorLike",
    "Send",
    "SmartProxy",
    "Splitter",
    "StateError",
    "StateTransaction",
    "StatefulStep",
    "TranslationError",
    "Translator",
    "Translators",
    "UnknownContentTypeError",
    "UnroutableMessageError",
    "WireTap",
    "attach_routing_slip",
    "begin_sequence",
    "end_sequence",
    "history_of",
    "routing_slip_of",
    "sequence_of",
    "to_predicate",
]
