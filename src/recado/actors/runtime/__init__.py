"""How a message gets to its handler: cells with a mailbox, and the turns in which the loop runs them.

cell       mailbox, behaviour, one message at a time      turn      the loop runs the cells that have work
mailbox    what waits, in order                           pressure  who sends to full ones
doorbell   one wake-up of the loop for many threads       watchdog  reports handlers that block the loop
signals    SIGTERM and SIGINT end a program in order      state     clock
"""
