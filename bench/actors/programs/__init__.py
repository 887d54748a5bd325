"""The programs that the benchmark runs, one for each actor library, in separate processes.

They read `TASK NUMBER …` from standard input, and answer in JSON: see `task_loop.py`. All do the same: a
message with a number goes to an actor, and an ask is answered by that number.
"""
