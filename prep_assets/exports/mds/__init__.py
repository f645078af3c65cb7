"""MosaicML's MDS shards, for `streaming.StreamingDataset` and LLM-Foundry. Labels are unshifted, -100 where there is no loss."""
