"""The main job from beginning to end: a node, a market on a feed, bars by Spark, and a kill -9 on the way.

stage.py      the node with its archives, and a process that is killed: the recorder
market.py     a morning that is over, and what is published while the others look on
watching.py   what is seen while it runs: in a terminal, or a line now and then
telling.py    the story: who starts when, who is killed, and whether all came out right
drawing.py    the pictures
report.py     the report that they are in
"""
