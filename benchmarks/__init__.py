"""`make bench`: what ours and its peers do on this machine, one product at a time. See docs/benchmarks.md."""
