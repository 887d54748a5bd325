"""How a message gets to its handler: cells with a mailbox, and the turns in which the event loop runs them.

cell        runs one actor, one message at a time          loop_dispatcher   runs ready cells on the event loop
mailbox     the queue of a cell                            backpressure      pauses senders to a full mailbox
wakeup      one loop wakeup for many threads               watchdog          logs handlers that block the loop
os_signals  SIGTERM and SIGINT close a system              state, clock
"""
