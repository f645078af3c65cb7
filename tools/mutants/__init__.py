"""Mutation testing of the checks, made fast: mutmut's changes, each tried in a fork of one pytest session that has collected a module's direct tests."""
