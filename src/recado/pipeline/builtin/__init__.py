"""Pipelines that ship, each a page: what they compute is a function on DataFrames, in batch and in streaming.

bars.py          quotes and trades to bars: open, high, low, close, vwap, volatility
percentiles.py   the measurements of the Trading System to its tables
metrics.py       the counters of brokers over time
history.py       what went by, to be searched
upkeep.py        archives put in order: few large files, old rows elsewhere
"""
