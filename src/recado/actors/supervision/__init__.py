"""The life of an actor: start, stop, failure and restart, and the links through which other actors take part.

strategy    children          which actors a supervisor restarts, and how often; both are pure
signals     signal_handler    what actors tell each other about their life, and how a cell reacts
lifecycle   restart           start and stop; what follows a failure
links                         the relations of one cell: children, monitors, ties
"""
