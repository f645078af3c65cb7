"""Provenance of tokens and records, effects of changes, trainers' labels, and pages about stores."""
