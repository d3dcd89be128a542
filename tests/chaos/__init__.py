"""Long, brutal runs: what is sent is counted against what ran, waits or is dead, and nothing may be missing."""
