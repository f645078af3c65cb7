"""What a teacher says of tokens, read again by code of its own."""
