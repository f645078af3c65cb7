"""Harnesses that try to break stores: each is a command with a seed, and has a short version among the tests. See docs/reliability.md."""
