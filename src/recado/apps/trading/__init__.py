"""The Trading System: a benchmark of asks to remote actors, over TCP and through a broker.

An exchange of actors, clients that ask it, and the benchmark around them. Suggested reading order:

    book.py                an order book, pure: matches orders
    shares.py              the shares, in three groups
    messages.py            the messages between clients and exchange
    exchange.py            books, engines, receivers and the receptionist, as actors
    clients.py             the clients, and how they time their asks
    roles.py               both as programs, over TCP or AMQP
    delay_proxy.py         a TCP proxy that adds latency

    plan.py                the runs of a benchmark
    processes.py           the processes of a run, and their output
    benchmark.py           executes run after run, and publishes the timings on a feed with an archive
    measurement.py         the published records

    results.py             the figures, computed from the archive; spark_results.py does the same with Spark
    figures.py             the columns of a table
    published_figures.py   the figures of the dissertation
    tables.py, plots.py, report.py   both side by side
"""
