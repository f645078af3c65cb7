"""Rendered text → token ids and loss weights: engines, spans, mask policies, truncation."""
