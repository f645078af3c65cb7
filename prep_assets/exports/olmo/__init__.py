"""OLMo-core: the files are described in `write.py`."""
