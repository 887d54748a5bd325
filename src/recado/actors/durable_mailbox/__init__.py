"""Durable mailboxes: messages that are stored in a journal until their handler has ended.

mailboxes      the durable mailboxes of a system, in one folder
journal        their journal on disk
sequence_set   which sequence numbers of a sender were received before
"""
