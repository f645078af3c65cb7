"""Source files behind URLs, and data sets of the Hugging Face hub."""
