"""Stores as they grow old: check them again, read them again, delete what is unused."""
