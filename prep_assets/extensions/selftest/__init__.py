"""`prep-assets selftest`: corrupts copies of a store's rows, and tries whether a check notices."""
