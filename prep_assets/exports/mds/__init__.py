"""MosaicML streaming: the files are described in `write.py`."""
