"""Migration between recado and RabbitMQ, in both directions.

plan.py      reads both servers, and finds what will be copied, moved or refused
topology.py  users, vhosts, policies, exchanges, queues and bindings, as definitions over HTTP
transfer.py  messages over AMQP, queue by queue
progress.py  a bar in a terminal, a line per queue otherwise

Nothing is lost: a message is acknowledged at the source after the target has confirmed it. A message that was moved
is not in the source any more, so a migration that was interrupted at any time continues when the same command is run
again. Messages that the target had confirmed and that were not acknowledged yet are then moved twice: at most
`--window` of the queue that was being moved. Streams are copied instead, and a file has the position of each.
"""
