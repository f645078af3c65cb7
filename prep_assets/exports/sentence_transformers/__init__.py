"""sentence-transformers: the files are described in `write.py`."""
