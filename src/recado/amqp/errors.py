"""What can go wrong in AMQP, one class per reply code.

A class names its code and its base names what it closes, so an error is raised anywhere and answered in one
place. Texts follow RabbitMQ's ("no queue 'x' in vhost '/'"), because people search for them.
"""

from typing import ClassVar


class ProtocolError(Exception):
    """An error that the peer is told about with a reply code."""

    code: ClassVar[int]
    name: ClassVar[str]

    def __init__(self, text: str, failed: tuple[int, int] = (0, 0)) -> None:
        """`failed` are the class and method ids of the method that caused the error, if one did."""
        super().__init__(text)
        self.failed = failed

    @property
    def reply_text(self) -> str:
        return f"{self.name} - {self}"


class ClosesChannel(ProtocolError):
    """The peer asked for something it cannot have; only this channel ends."""


class ClosesConnection(ProtocolError):
    """The conversation itself is broken, or was refused; all channels end."""


class AccessRefused(ClosesChannel):
    code = 403
    name = "ACCESS_REFUSED"


class NotFound(ClosesChannel):
    code = 404
    name = "NOT_FOUND"


class ResourceLocked(ClosesChannel):
    code = 405
    name = "RESOURCE_LOCKED"


class PreconditionFailed(ClosesChannel):
    code = 406
    name = "PRECONDITION_FAILED"


class ConnectionForced(ClosesConnection):
    code = 320
    name = "CONNECTION_FORCED"


class LoginRefused(ClosesConnection):
    code = 403
    name = "ACCESS_REFUSED"


class FrameError(ClosesConnection):
    code = 501
    name = "FRAME_ERROR"


class FramingLost(FrameError):
    """The end of a frame cannot be found, so that nothing behind it can be read."""


class SyntaxFault(ClosesConnection):
    """Well-formed, but beyond a limit of this implementation; RabbitMQ answers malformed input with 501."""

    code = 502
    name = "SYNTAX_ERROR"


class CommandInvalid(ClosesConnection):
    code = 503
    name = "COMMAND_INVALID"


class ChannelFault(ClosesConnection):
    code = 504
    name = "CHANNEL_ERROR"


class UnexpectedFrame(ClosesConnection):
    code = 505
    name = "UNEXPECTED_FRAME"


class NotAllowed(ClosesConnection):
    code = 530
    name = "NOT_ALLOWED"


class NotImplementedHere(ClosesConnection):
    code = 540
    name = "NOT_IMPLEMENTED"


class InternalError(ClosesConnection):
    code = 541
    name = "INTERNAL_ERROR"
