"""Megatron and ModelLink: the files are described in `write.py`."""
