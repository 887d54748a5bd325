"""Errors of the broker core that are not AMQP reply codes (those are in `recado.amqp.errors`)."""


class BrokerError(Exception):
    """The base of these errors."""


class InvalidValueError(BrokerError):
    """The value of an argument is invalid. The message is only the reason, in RabbitMQ's notation."""


class InvalidPolicyError(BrokerError, ValueError):
    """The policy is invalid; the message says why."""


class InvalidAlterationError(BrokerError, ValueError):
    """A queue cannot get other settings; the message begins with the setting and says why."""
