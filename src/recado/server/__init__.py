"""The broker on sockets: connections, authentication, TLS.

A session is one connection as computation, bytes in and bytes out; the listener gives it a socket and time.
"""
