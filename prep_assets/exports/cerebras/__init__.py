"""Cerebras Model Zoo: the files are described in `write.py`."""
