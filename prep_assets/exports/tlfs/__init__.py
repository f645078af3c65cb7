"""train-llm-from-scratch: the files are described in `write.py`."""
