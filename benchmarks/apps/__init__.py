"""What the products themselves run: their workers' jobs, and how they enqueue. Each needs its own product installed."""
