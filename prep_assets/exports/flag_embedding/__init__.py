"""FlagEmbedding: the files are described in `write.py`."""
