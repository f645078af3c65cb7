"""Selftest: corrupts copies of the rows of a store, one mutation at a time, and sees which check notices."""
