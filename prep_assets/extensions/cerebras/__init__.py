"""Row formats of Cerebras Model Zoo."""
