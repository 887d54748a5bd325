"""The errors of AMQP 0-9-1, with their reply codes.

Each class has one reply code, and its base class says whether the error closes the channel or the connection.
So an error can be raised anywhere and is answered in one place. Texts follow RabbitMQ's ("no queue 'x' in vhost
'/'"), because people search for them.
"""

from typing import ClassVar


class AmqpError(Exception):
    """An error of the protocol. The reply code and text are sent to the peer in channel.close or connection.close."""

    code: ClassVar[int]
    name: ClassVar[str]

    def __init__(self, text: str, method_ids: tuple[int, int] = (0, 0)) -> None:
        """`method_ids` are the class and method ids of the method that caused the error, or zeros."""
        super().__init__(text)
        self.method_ids = method_ids

    @property
    def reply_text(self) -> str:
        """The text of the close method: the name of the code and the description."""
        return f"{self.name} - {self}"


class ChannelLevelError(AmqpError):
    """An error of one operation; it closes the channel."""


class ConnectionLevelError(AmqpError):
    """A violation of the protocol or a refused login; it closes the connection."""


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
    """The end of a frame is unknown, so no later frame on the connection can be read."""


class AmqpSyntaxError(ConnectionLevelError):
    """A malformed login response, content without a publish, or a field table beyond a limit of this
    implementation. Malformed frames and method arguments are a `FrameError`, as in RabbitMQ."""

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
