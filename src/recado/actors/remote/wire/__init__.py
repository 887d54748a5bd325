"""What travels between nodes, from the bytes inwards: a sealed frame, its envelope, what is in that.

frame       authentic or not            envelope      for whom, from whom; envelope.proto is the format
controls    what nodes say themselves   compression   failures   messages made small, exceptions
"""
