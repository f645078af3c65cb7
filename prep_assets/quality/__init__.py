"""Quality steps: what the texts of examples hold, step by step, each with its source in the literature."""
