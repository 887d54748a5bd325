"""Nodes that reach each other through a broker, by name: bridges, and the actors that have their channels.

After "Uso do padrão AMQP para transporte de mensagens entre atores remotos" by Thadeu de Russo e Carmo.
"""

from .settings import AmqpSettings as AmqpSettings
from .storage import ConnectionSharing as ConnectionSharing
from .storage import Storage as Storage
from .transport import AmqpTransport as AmqpTransport
