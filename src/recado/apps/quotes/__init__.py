"""A feed of financial quotes: a simulated market, a ticker, a recorder that resumes, and a subscriber that
catches up.

The market is pure and depends only on the seed. Read it in this order:

    trading_day.py   the phases of a day, and how active the market is
    instrument.py    the symbols: price, volatility, share of the activity
    price_walk.py    the random walk of prices
    arrivals.py      when events happen: more at the opening and the close, and in bursts
    market.py        the stream of quotes, trades and bells
    tick.py          the messages, as JSON or in a compact form

The programs use a feed:

    publisher.py   publishes the market at a pace
    board.py       the state of a ticker; screen.py renders it
    viewer.py      the live ticker, and the one that first catches up on the past
    recorder.py    a database with each tick once, however often its writer is killed
"""
