"""Quality steps, which judge the texts of examples, each with its source in the literature; verdicts on the rows of every family by them; private data."""
