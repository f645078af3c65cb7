"""Parts that nothing else in the package imports: entry points of `pyproject.toml` name what they add."""
