"""What a job is and may do. Pure: no I/O, no clock, no randomness; `now` and jitter are arguments."""
