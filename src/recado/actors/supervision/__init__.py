"""What seldom happens to an actor: it starts, stops, fails, hears a signal; and who answers for it.

supervision   family   bonds     who answers for whom, and how; the first two are pure
signals       hearing            what is said of it, and what an actor does that hears it
lifecycle     restart            beginning and end; what a failure leads to
"""
