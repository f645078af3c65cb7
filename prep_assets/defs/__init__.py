"""Dagster and nothing else: what the graph of assets looks like there, and how events of the engine become Dagster's."""
