"""prep-assets: a Dagster asset graph for LLM training data."""

__version__ = "0.1.0"
