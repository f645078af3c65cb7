"""packed Parquet: the files are described in `write.py`."""
