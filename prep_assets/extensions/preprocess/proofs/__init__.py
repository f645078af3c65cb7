"""Rules about rows of the extension `preprocess`."""
