"""The broker on sockets: connections, login, limits, and the message store on a journal.

`Session` is the protocol of one connection without I/O, bytes in and bytes out. `Connection` runs it on a
socket. `Server` accepts connections, flushes output and provides time. `Committer` makes the store durable.
"""
