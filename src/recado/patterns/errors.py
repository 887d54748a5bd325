"""The errors of the patterns SDK. `MessagingError` is the base of all."""


class MessagingError(Exception):
    """Base class of the errors of this package."""


class CompositionError(MessagingError, ValueError):
    """Endpoints or steps were combined in a way that cannot work; raised when they are declared or started."""


class TranslationError(MessagingError, ValueError):
    """An object cannot be encoded, or a body cannot be decoded to the type of its handler."""


class UnknownContentTypeError(TranslationError):
    """No translator is registered for the content type of a message."""


class ClaimError(MessagingError):
    """The body of a claim check is missing, too large, or not the one of the claim."""


class UnroutableMessageError(MessagingError):
    """The broker could route a message to no queue."""


class NotConfirmedError(MessagingError):
    """The broker refused a message (basic.nack), for example because a queue is full."""


class RequestTimeoutError(MessagingError, TimeoutError):
    """No reply arrived within the timeout of a request."""


class ReplyError(MessagingError):
    """The handler of a request failed; the text is that of its exception."""


class HandlerTimeoutError(MessagingError, TimeoutError):
    """A handler ran longer than the `timeout` of its endpoint."""


class HandlerAbortedError(MessagingError):
    """A handler raised something that is not an `Exception`, such as the cancellation of what it waited for."""


class RejectMessageError(MessagingError):
    """Raised by a handler to dead-letter a message at once, without further attempts."""


class StateError(MessagingError):
    """The store of stateful patterns cannot be opened, read or written."""
