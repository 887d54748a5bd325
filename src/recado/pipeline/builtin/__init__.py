"""Built-in pipelines as functions on DataFrames, and maintenance of archives.

bars.py          quotes and trades to bars: open, high, low, close, vwap, volatility
percentiles.py   the measurements of the Trading System to its tables
metrics.py       the counters of brokers over time
history.py       messages as a searchable table
maintenance.py   compaction and retention of archives
"""
