"""The simulation of the overlay: 3 to 60 nodes with users and topics, under all kinds of faults.

    script.py     everything that a seed determines: the nodes, the network, the faults, the number of commands
    world.py      a network of nodes, from start to end
    station.py    one node in its process: crashes, pauses, the drift of its clock
    history.py    what users and the network observe
    judge.py      whether that is consistent with the guarantees; verdict.py defines the rules

Everything is determined by a seed. `python -m bench.overlay_sim SEED` repeats one.
"""
