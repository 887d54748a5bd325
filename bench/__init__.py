"""Benchmarks: `python -m bench NAME`, or `./dev bench NAME`, which also installs the requirements.

A benchmark is a module of this package that is listed in `bench.__main__` and defines

    SCENARIOS   the measured scenarios: name, unit, and how they are compared with the peer
    run         takes the samples and enters them into a `Book`

A *peer* is the program that recado is compared with, for instance RabbitMQ. A benchmark without a peer (crash
tests, fuzzing) compares with limits only. A scenario that was not measured has failed.

The shared modules, in reading order:

    scenario.py   scenarios, comparisons and samples
    plan.py       the options of the command line: quick or full, which scenarios, how long
    book.py       the samples taken so far, and the reasons of failed scenarios
    aims.py       the required figures, from aims.toml, and how results are judged by them
    report.py     the table, the summary line, the JSON file
    picture.py    the chart; a benchmark with `illustrate` writes tables and plots of its own
    generator.py  compiles and runs the load generator, loadgen/*.c
    load.py       the loads, and how samples of them are taken from both brokers
    processes.py  processes, memory and processor time of a broker, read from /proc
"""
