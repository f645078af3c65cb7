"""Where each token comes from, where each record went, what a change would change, and pages about it all. Nothing here writes a store."""
