"""Sample data and a small tokenizer that the project generates itself, so that a first run needs no network."""
