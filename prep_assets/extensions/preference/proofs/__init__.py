"""Proofs of preference pairs, labelled answers and ranked lists."""
