"""Enterprise integration patterns for any AMQP 0-9-1 broker.

messaging, blocking                                               the application: endpoints, publishing, requests
topology, polling_consumer, transaction, endpoint_registry, runtime
                                                                  the parts of an application
publisher, requester, endpoint, processor, settlement, tap        what runs while it is started
handler, subscription_options, encoder, reception, declaration    the parts of an endpoint
retry, failure, delay, waiting_lines, limits, inbox               what happens to messages that fail, or are too many
interceptor, tracing, trace_context                               code around all messages, and OpenTelemetry
message, message_sequence, destination, return_address, errors    values
step                                                              the unit of which flows are composed
flow, flow_processor                                              steps in transactions
outbox                                                            messages in a program's own transactions
process_manager                                                   processes of many steps, driven by messages
routing/                                                          steps that decide where messages go
management/                                                       steps that observe and control
transformation/                                                   steps that change what messages contain
state/                                                            what steps remember, in a database
translation/                                                      objects to bodies and back, by content type
harness, pytest_plugin, asyncapi                                  tests of an application, and its description
extra                                                             packages that only some programs install

The names below are imported on first use: pytest loads the plugin in this package in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .blocking import BlockingMessaging as BlockingMessaging
    from .blocking import BlockingOutbox as BlockingOutbox
    from .blocking import BlockingTransaction as BlockingTransaction
    from .destination import Destination as Destination
    from .destination import DestinationLike as DestinationLike
    from .destination import LogStream as LogStream
    from .destination import PointToPoint as PointToPoint
    from .destination import PublishSubscribe as PublishSubscribe
    from .errors import ClaimError as ClaimError
    from .errors import CompositionError as CompositionError
    from .errors import HandlerAbortedError as HandlerAbortedError
    from .errors import HandlerTimeoutError as HandlerTimeoutError
    from .errors import MessagingError as MessagingError
    from .errors import NotConfirmedError as NotConfirmedError
    from .errors import RejectMessageError as RejectMessageError
    from .errors import ReplyError as ReplyError
    from .errors import RequestTimeoutError as RequestTimeoutError
    from .errors import StateError as StateError
    from .errors import TranslationError as TranslationError
    from .errors import UnknownContentTypeError as UnknownContentTypeError
    from .errors import UnroutableMessageError as UnroutableMessageError
    from .feed_source import FeedSource as FeedSource
    from .harness import HandledMessage as HandledMessage
    from .harness import Harness as Harness
    from .harness import PublishedMessage as PublishedMessage
    from .interceptor import Interceptor as Interceptor
    from .limits import CircuitBreaker as CircuitBreaker
    from .management import CONTROL_EXCHANGE as CONTROL_EXCHANGE
    from .management import HISTORY_HEADER as HISTORY_HEADER
    from .management import ControlBus as ControlBus
    from .management import ControlCommand as ControlCommand
    from .management import ControlConsole as ControlConsole
    from .management import Detour as Detour
    from .management import EndpointStatistics as EndpointStatistics
    from .management import HistoryEntry as HistoryEntry
    from .management import MessageHistory as MessageHistory
    from .management import ParkedMessage as ParkedMessage
    from .management import PauseEndpoint as PauseEndpoint
    from .management import ProgramState as ProgramState
    from .management import ProxiedRequest as ProxiedRequest
    from .management import ReadState as ReadState
    from .management import ReplayResult as ReplayResult
    from .management import ResumeEndpoint as ResumeEndpoint
    from .management import SetConcurrency as SetConcurrency
    from .management import SetDetour as SetDetour
    from .management import SmartProxy as SmartProxy
    from .management import TestMessageSeparator as TestMessageSeparator
    from .management import WireTap as WireTap
    from .management import history_of as history_of
    from .management import is_test_message as is_test_message
    from .management import parked_messages as parked_messages
    from .management import purge as purge
    from .management import replay as replay
    from .management import send_test_message as send_test_message
    from .message import DeliveryInfo as DeliveryInfo
    from .message import Message as Message
    from .message_sequence import MessageSequence as MessageSequence
    from .message_sequence import begin_sequence as begin_sequence
    from .message_sequence import end_sequence as end_sequence
    from .message_sequence import sequence_of as sequence_of
    from .messaging import Health as Health
    from .messaging import Messaging as Messaging
    from .outbox import Outbox as Outbox
    from .process_manager import ProcessManager as ProcessManager
    from .process_manager import RunningProcess as RunningProcess
    from .retry import Retry as Retry
    from .routing import ROUTING_SLIP_HEADER as ROUTING_SLIP_HEADER
    from .routing import Aggregator as Aggregator
    from .routing import ContentRouter as ContentRouter
    from .routing import Delayer as Delayer
    from .routing import DynamicRouter as DynamicRouter
    from .routing import Filter as Filter
    from .routing import IdempotentReceiver as IdempotentReceiver
    from .routing import MessageField as MessageField
    from .routing import MessagePredicate as MessagePredicate
    from .routing import MessageSelector as MessageSelector
    from .routing import Recipient as Recipient
    from .routing import RecipientFunction as RecipientFunction
    from .routing import RecipientLike as RecipientLike
    from .routing import RecipientList as RecipientList
    from .routing import RegexRouter as RegexRouter
    from .routing import Resequencer as Resequencer
    from .routing import RoutingRule as RoutingRule
    from .routing import RoutingSlip as RoutingSlip
    from .routing import RuleChange as RuleChange
    from .routing import RuleRemoval as RuleRemoval
    from .routing import SelectorLike as SelectorLike
    from .routing import Splitter as Splitter
    from .routing import attach_routing_slip as attach_routing_slip
    from .routing import composed_message_processor as composed_message_processor
    from .routing import routing_slip_of as routing_slip_of
    from .routing import scatter_gather as scatter_gather
    from .routing import to_predicate as to_predicate
    from .state import MemoryStore as MemoryStore
    from .state import SqliteStore as SqliteStore
    from .state import StateStore as StateStore
    from .state import StoreTransaction as StoreTransaction
    from .step import AnyFlowStep as AnyFlowStep
    from .step import AsyncOutputs as AsyncOutputs
    from .step import FlowStep as FlowStep
    from .step import Output as Output
    from .step import Outputs as Outputs
    from .step import Send as Send
    from .step import StatefulStep as StatefulStep
    from .step import StateTransaction as StateTransaction
    from .subscription_options import HandlerOptions as HandlerOptions
    from .subscription_options import SourceOptions as SourceOptions
    from .tracing import Tracing as Tracing
    from .transaction import BrokerTransaction as BrokerTransaction
    from .transformation import CLAIM_CONTENT_TYPE as CLAIM_CONTENT_TYPE
    from .transformation import CanonicalModel as CanonicalModel
    from .transformation import Claim as Claim
    from .transformation import ClaimCheck as ClaimCheck
    from .transformation import ClaimRedeem as ClaimRedeem
    from .transformation import ClaimStore as ClaimStore
    from .transformation import ContentEnricher as ContentEnricher
    from .transformation import ContentFilter as ContentFilter
    from .transformation import Enricher as Enricher
    from .transformation import EnricherLike as EnricherLike
    from .transformation import EnvelopeUnwrapper as EnvelopeUnwrapper
    from .transformation import EnvelopeWrapper as EnvelopeWrapper
    from .transformation import FieldPath as FieldPath
    from .transformation import FolderClaimStore as FolderClaimStore
    from .transformation import MemoryClaimStore as MemoryClaimStore
    from .transformation import Normaliser as Normaliser
    from .transformation import ObjectClaimStore as ObjectClaimStore
    from .transformation import WrappedMessage as WrappedMessage
    from .transformation import apply_enrichers as apply_enrichers
    from .transformation import to_enricher as to_enricher
    from .translation import Translator as Translator
    from .translation import Translators as Translators

_MODULES = {
    "Aggregator": "routing",
    "AnyFlowStep": "step",
    "AsyncOutputs": "step",
    "BlockingMessaging": "blocking",
    "BlockingOutbox": "blocking",
    "BlockingTransaction": "blocking",
    "BrokerTransaction": "transaction",
    "CLAIM_CONTENT_TYPE": "transformation",
    "CONTROL_EXCHANGE": "management",
    "CanonicalModel": "transformation",
    "CircuitBreaker": "limits",
    "Claim": "transformation",
    "ClaimCheck": "transformation",
    "ClaimError": "errors",
    "ClaimRedeem": "transformation",
    "ClaimStore": "transformation",
    "CompositionError": "errors",
    "ContentEnricher": "transformation",
    "ContentFilter": "transformation",
    "ContentRouter": "routing",
    "ControlBus": "management",
    "ControlCommand": "management",
    "ControlConsole": "management",
    "Delayer": "routing",
    "DeliveryInfo": "message",
    "Destination": "destination",
    "DestinationLike": "destination",
    "Detour": "management",
    "DynamicRouter": "routing",
    "EndpointStatistics": "management",
    "Enricher": "transformation",
    "EnricherLike": "transformation",
    "EnvelopeUnwrapper": "transformation",
    "EnvelopeWrapper": "transformation",
    "FeedSource": "feed_source",
    "FieldPath": "transformation",
    "Filter": "routing",
    "FlowStep": "step",
    "FolderClaimStore": "transformation",
    "HISTORY_HEADER": "management",
    "HandledMessage": "harness",
    "HandlerAbortedError": "errors",
    "HandlerTimeoutError": "errors",
    "HandlerOptions": "subscription_options",
    "Harness": "harness",
    "Health": "messaging",
    "HistoryEntry": "management",
    "IdempotentReceiver": "routing",
    "Interceptor": "interceptor",
    "LogStream": "destination",
    "MemoryClaimStore": "transformation",
    "MemoryStore": "state",
    "Message": "message",
    "MessageField": "routing",
    "MessageHistory": "management",
    "MessagePredicate": "routing",
    "MessageSelector": "routing",
    "MessageSequence": "message_sequence",
    "Messaging": "messaging",
    "MessagingError": "errors",
    "Normaliser": "transformation",
    "NotConfirmedError": "errors",
    "ObjectClaimStore": "transformation",
    "Outbox": "outbox",
    "Output": "step",
    "Outputs": "step",
    "ParkedMessage": "management",
    "PauseEndpoint": "management",
    "PointToPoint": "destination",
    "ProcessManager": "process_manager",
    "ProgramState": "management",
    "ProxiedRequest": "management",
    "PublishSubscribe": "destination",
    "PublishedMessage": "harness",
    "ROUTING_SLIP_HEADER": "routing",
    "ReadState": "management",
    "Recipient": "routing",
    "RecipientFunction": "routing",
    "RecipientLike": "routing",
    "RecipientList": "routing",
    "RegexRouter": "routing",
    "RejectMessageError": "errors",
    "ReplayResult": "management",
    "ReplyError": "errors",
    "RequestTimeoutError": "errors",
    "Resequencer": "routing",
    "ResumeEndpoint": "management",
    "Retry": "retry",
    "RoutingRule": "routing",
    "RoutingSlip": "routing",
    "RuleChange": "routing",
    "RuleRemoval": "routing",
    "RunningProcess": "process_manager",
    "SelectorLike": "routing",
    "Send": "step",
    "SetConcurrency": "management",
    "SetDetour": "management",
    "SmartProxy": "management",
    "Splitter": "routing",
    "SourceOptions": "subscription_options",
    "SqliteStore": "state",
    "StateError": "errors",
    "StateStore": "state",
    "StateTransaction": "step",
    "StatefulStep": "step",
    "StoreTransaction": "state",
    "TestMessageSeparator": "management",
    "Tracing": "tracing",
    "TranslationError": "errors",
    "Translator": "translation",
    "Translators": "translation",
    "UnknownContentTypeError": "errors",
    "UnroutableMessageError": "errors",
    "WireTap": "management",
    "WrappedMessage": "transformation",
    "apply_enrichers": "transformation",
    "attach_routing_slip": "routing",
    "begin_sequence": "message_sequence",
    "composed_message_processor": "routing",
    "end_sequence": "message_sequence",
    "history_of": "management",
    "is_test_message": "management",
    "parked_messages": "management",
    "purge": "management",
    "replay": "management",
    "routing_slip_of": "routing",
    "scatter_gather": "routing",
    "send_test_message": "management",
    "sequence_of": "message_sequence",
    "to_enricher": "transformation",
    "to_predicate": "routing",
}

__all__ = [*_MODULES]


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return getattr(import_module(f".{_MODULES[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
