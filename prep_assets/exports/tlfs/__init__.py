"""train-llm-from-scratch's files: HDF5 for pretraining and SFT, JSONL for preferences and RL."""
