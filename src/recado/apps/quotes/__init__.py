"""A feed of financial quotes: a simulated market, a ticker, a recorder that resumes, a latecomer.

The market is computation and the same for the same seed; a reader may take it in this order:

    day.py       the hours of a trading day: auctions, continuous trading, how busy it is when
    listing.py   the symbols: price, volatility, how much they are traded
    walk.py      where a price goes
    rhythm.py    when something happens: more in the morning, less at noon, and in bursts
    market.py    all of it together: a stream of quotes, trades and bells
    tick.py      what is published, as JSON or in few bytes

The programs are on the feed:

    publishing.py   the market at a pace
    board.py        what a ticker knows; screen.py: how it looks
    watching.py     the live ticker, and the latecomer, who first gets what was before
    recording.py    a database that has each tick once, however often its writer is killed
"""
