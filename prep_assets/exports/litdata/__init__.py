"""litdata chunks for LitGPT's pretraining, read with ``StreamingDataset(item_loader=TokensLoader(block_size=seq_len + 1))``."""
