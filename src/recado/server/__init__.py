"""The broker on sockets: connections, login, limits, and the message store on a journal.

`Session` is one connection as computation, bytes in and bytes out; `Connection` runs it on a socket, and `Server` accepts
connections, flushes output and provides time. `Committer` makes the store durable.
"""
