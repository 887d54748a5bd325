"""Steps that change what messages contain.

enricher           add what is missing
content_filter     keep or drop fields
envelope           messages within messages
claim_check        large bodies outside of messages
claim_store        where they are: a folder, an object store, memory
canonical_model    one type for the messages of several senders
"""

from .canonical_model import CanonicalModel, Normaliser
from .claim_check import CLAIM_CONTENT_TYPE, Claim, ClaimCheck, ClaimRedeem
from .claim_store import ClaimStore, FolderClaimStore, MemoryClaimStore, ObjectClaimStore
from .content_filter import ContentFilter, FieldPath
from .enricher import ContentEnricher, Enricher, EnricherLike, apply_enrichers, to_enricher
from .envelope import EnvelopeUnwrapper, EnvelopeWrapper, WrappedMessage

__all__ = [
    "CLAIM_CONTENT_TYPE",
    "CanonicalModel",
    "Claim",
    "ClaimCheck",
    "ClaimRedeem",
    "ClaimStore",
    "ContentEnricher",
    "ContentFilter",
    "Enricher",
    "EnricherLike",
    "EnvelopeUnwrapper",
    "EnvelopeWrapper",
    "FieldPath",
    "FolderClaimStore",
    "MemoryClaimStore",
    "Normaliser",
    "ObjectClaimStore",
    "WrappedMessage",
    "apply_enrichers",
    "to_enricher",
]
