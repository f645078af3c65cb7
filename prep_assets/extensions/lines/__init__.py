"""Families of lines: rows become JSON lines in one of two forms, are merged over domains and tokenized; what proves them."""
