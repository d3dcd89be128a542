"""How long the tests wait: by what a wait means, never by what this machine needs."""

PATIENCE = 90.0
"""Seconds that a condition may take on the slowest machine. A test that passes never waits so long."""

SOON = 5.0
"""Seconds in which somebody acts who was told. What only looks for news looks every ten seconds, with the heartbeat."""
