"""Mailboxes that outlive the process.

mailboxes   those of one system, in a folder      mailroom   the journal beneath them
settled     which numbers of a sender came before
"""
