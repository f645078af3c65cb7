"""Distillation: what a teacher holds for likely at each token of a conversation, beside its tokens.

A log-probability is stored as float16: it is off by at most 1/2048 of itself (2^-25 near 0), which moves no probability by more than 0.0002: the largest of
x·exp(-x) is 1/e.
"""

from __future__ import annotations

NAME, SCHEMA = "teacher", "distilled"
"""Of the lists, and of the rows that bring them."""
FIELDS = {"id": "uint32", "logprob": "float16"}
"""Of an entry: a token that the teacher holds for likely at this place, and its log-probability. Those of a token stand from the likeliest on."""
