"""Checks: which each asset has, how they get at their data, and whether they notice corruptions."""
