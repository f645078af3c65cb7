"""Hugging Face `datasets`: the files are described in `write.py`."""
