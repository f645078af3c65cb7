"""Samples to text to ids: tokenizers and their engines, chat templates, spans, mask policies, truncation."""
