"""Arrow data sets for trainers built on Hugging Face `datasets`: TRL, axolotl, LLaMA-Factory, open-instruct."""
