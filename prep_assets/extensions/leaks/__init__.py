"""`prep-assets leaks`: shows held-out texts in examples, side by side."""
