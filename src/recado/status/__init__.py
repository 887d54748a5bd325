"""Status records: what actor systems and pipelines publish about themselves, for the management API."""
