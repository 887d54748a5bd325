"""The ledger: what the broker tells its keeper, as records of a journal, and back."""
