"""Return addresses: the queue to which a reply is sent, as named by the requester in `reply_to`."""

from typing import Any, Final

from .destination import PublishSubscribe
from .message import Message
from .step import Send

REPLY_ERROR_HEADER: Final = "x-reply-error"  # the reply to a request that failed

# It routes by the name of the queue. A queue cannot be used as a destination here, because it would have to exist:
# a requester that has gone, and its queue with it, is not an error.
_DEFAULT_EXCHANGE: Final = PublishSubscribe("", type="direct")


def send_reply(reply: Message[Any], reply_to: str, correlation_id: str | None) -> Send:
    """Return the output that sends a reply to a return address, or drops it if that has gone."""
    return Send(
        _DEFAULT_EXCHANGE,
        reply.replace(key=reply_to, correlation_id=correlation_id, reply_to=None),
    )
