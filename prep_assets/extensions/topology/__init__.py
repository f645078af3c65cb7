"""Packed rows for trainers that split them among ranks: packed Parquet of Megatron-Bridge, and the lines of Megatron-LM's `SFTDataset`."""
