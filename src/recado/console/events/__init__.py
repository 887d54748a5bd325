"""The stream of server-sent events: changes of objects, and figures of every second."""
