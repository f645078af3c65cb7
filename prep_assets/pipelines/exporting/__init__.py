"""Exports as assets: written, and read back by code that did not write them."""
