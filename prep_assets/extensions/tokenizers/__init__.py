"""Tokenizers other than a `tokenizer.json`: published in other files, or a class of the user."""
