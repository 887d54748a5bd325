"""The wire format between nodes, from the outside in: frame, envelope, payload.

frame         authenticated with the shared cookie      envelope   target, sender, payload (envelope.proto)
controls      messages between the nodes themselves     failures   exceptions
compression   of payloads
"""
