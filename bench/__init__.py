"""Benchmarks: `python -m bench NAME`, or `./dev bench NAME`, which also sees to the set-up.

A benchmark is a module of this package that is named in `bench.__main__` and has

    SCENARIOS   what is measured: name, unit, and how it is compared with the peer
    run         takes the samples and enters them into a book

One without a peer, for crashes or fuzzing, compares by limits only, which ask for no samples of
a peer; everything that was not measured has failed.

Everything else is shared, and a reader may take it in this order:

    scenario.py   what a scenario is, and the samples of it
    plan.py       what the command line asked for: quick or full, which scenarios, how long
    book.py       the samples taken so far; a scenario that failed is entered with its reason
    aims.py       the figures to reach, from aims.toml, and how a ratio is judged
    report.py     the table, the last line, the JSON
    picture.py    the same as a picture
    generator.py  builds and runs the load generator, loadgen/*.c
    load.py       what it is asked to do, and how samples of that are taken from both brokers
    processes.py  processes and memory of a broker, read from /proc
"""
