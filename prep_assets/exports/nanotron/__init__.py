"""nanotron and datatrove: the files are described in `write.py`."""
