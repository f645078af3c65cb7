"""verl's Parquet files: RL prompts with what is right, and SFT messages."""
