"""Cerebras Model Zoo's HDF5 files: ``output_chunk_0_<n>.h5`` with ``data`` int32 (N, rows, S), gzip, one sample a chunk."""
