"""Samples → rendered text with the span of every region: chat templates and what they can be trusted with."""
