"""What can go wrong in AMQP, one class per reply code.

A class names its code and its base names what it closes, so an error is raised anywhere and answered in one
place. Texts follow RabbitMQ's ("no queue 'x' in vhost '/'"), because people search for them.
"""

from typing import ClassVar


class AmqpError(Exception):
    """An error that the peer is told about with a reply code."""

    code: ClassVar[int]
    name: ClassVar[str]

    def __init__(self, text: str, method_ids: tuple[int, int] = (0, 0)) -> None:
        """`failed` are the class and method ids of the method that caused the error, if one did."""
        super().__init__(text)
        self.method_ids = method_ids

    @property
    def reply_text(self) -> str:
        return f"{self.name} - {self}"


class ChannelLevelError(AmqpError):
    """The peer asked for something it cannot have; only this channel ends."""


class ConnectionLevelError(AmqpError):
    """The conversation itself is broken, or was refused; all channels end."""


class AccessRefusedError(ChannelLevelError):
    code = 403
    name = "ACCESS_REFUSED"


class NotFoundError(ChannelLevelError):
    code = 404
    name = "NOT_FOUND"


class ResourceLockedError(ChannelLevelError):
    code = 405
    name = "RESOURCE_LOCKED"


class PreconditionFailedError(ChannelLevelError):
    code = 406
    name = "PRECONDITION_FAILED"


class ConnectionForcedError(ConnectionLevelError):
    code = 320
    name = "CONNECTION_FORCED"


class LoginRefusedError(ConnectionLevelError):
    code = 403
    name = "ACCESS_REFUSED"


class FrameError(ConnectionLevelError):
    code = 501
    name = "FRAME_ERROR"


class FramingLostError(FrameError):
    """The end of a frame cannot be found, so that nothing behind it can be read."""


class AmqpSyntaxError(ConnectionLevelError):
    """Well-formed, but beyond a limit of this implementation; RabbitMQ answers malformed input with 501."""

    code = 502
    name = "SYNTAX_ERROR"


class CommandInvalidError(ConnectionLevelError):
    code = 503
    name = "COMMAND_INVALID"


class ChannelError(ConnectionLevelError):
    code = 504
    name = "CHANNEL_ERROR"


class UnexpectedFrameError(ConnectionLevelError):
    code = 505
    name = "UNEXPECTED_FRAME"


class NotAllowedError(ConnectionLevelError):
    code = 530
    name = "NOT_ALLOWED"


class AmqpNotImplementedError(ConnectionLevelError):
    code = 540
    name = "NOT_IMPLEMENTED"


class InternalError(ConnectionLevelError):
    code = 541
    name = "INTERNAL_ERROR"
