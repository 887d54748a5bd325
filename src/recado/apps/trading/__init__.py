"""The Trading System: what it costs to ask a remote actor, point to point and through a broker.

An exchange as actors, clients that ask it, and a benchmark around them; a reader may take it in this order:

    book.py          an order book, pure: who trades with whom
    listing.py       the shares, in three groups
    messages.py      what clients and exchange say to each other
    exchange.py      books, engines, receivers and the receptionist, as actors
    clients.py       the clients, and how they time their asks
    roles.py         both as programs, over TCP or AMQP
    network.py       a network with a longer way

    plan.py          what is measured
    programs.py      processes, and what they say
    running.py       run after run; what comes of it is published on a feed, and archived
    measurement.py   what is published

    archived.py      the figures, from the archive; on_spark.py: the same by Spark
    figures.py       what a line of a table has
    published.py     the dissertation's own
    tables.py, plots.py, report.py   both side by side
"""
