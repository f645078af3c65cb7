"""Rows of stores for people: in a terminal, in a notebook and on pages; where they come from, where a record is, and why a token is trained."""
