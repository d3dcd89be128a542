"""What is measured: one module for each of the figures."""
