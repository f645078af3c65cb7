"""Held-out texts: the family `eval`, the search for them in the rows of every family, and `prep-assets leaks`, which shows them side by side."""
