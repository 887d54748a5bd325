"""The message store: the broker's durability port (`recado.broker.store.MessageStore`) on a journal.

`journal_store` implements the port. During a turn of the event loop it collects changes in a `turn_batch`; at
the end of the turn they become `records` in the journal. A `queue_index` remembers where the messages of each
queue are, and `segments` how many live messages each segment file holds. `paged_out` reads messages back,
`compaction` frees space, and `recovery` restores a broker after a restart. Streams have a journal each
(`streams`).

The invariants of the store are ST1 (`lsn`), ST2 (`turn_batch`), ST3 to ST5 (`journal_store`), QI
(`queue_index`) and RV (`recovery`).
"""
