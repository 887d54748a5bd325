"""The AMQP transport: nodes reach each other by name through a broker.

transport      AmqpTransport: one per node                  naming         names of exchanges, queues, keys
link           links of the transport, on bridges           topology       objects that a bridge declares
bridge         the state that survives reconnects           settings       options
actors         own the connections and channels             outbox         frames until they are confirmed
consumer       receives and settles; acks: in batches       confirmation   how the broker confirms
frame_batch    several frames in one message                retry          delays between attempts

After "Uso do padrão AMQP para transporte de mensagens entre atores remotos" by Thadeu de Russo e Carmo.
"""

from .settings import AmqpSettings as AmqpSettings
from .settings import ConnectionSharing as ConnectionSharing
from .settings import Storage as Storage
from .transport import AmqpTransport as AmqpTransport
