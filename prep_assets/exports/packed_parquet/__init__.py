"""Packed Parquet: Nemotron's data preparation for Megatron-Bridge (`GPTSFTPackedParquetDataset`) and NeMo-RL."""
