"""The leader: election, release of what is due, burial of what cannot run."""
