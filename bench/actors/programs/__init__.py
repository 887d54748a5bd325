"""Programs that do the work of the benchmark: each is one library of actors, in processes of its own.

They are told `TASK NUMBER …` on their standard input, and answer in JSON: see `serving.py`. What all of them do
is the same: a message with a number goes to an actor, and where an answer is wanted, it is that number.
"""
