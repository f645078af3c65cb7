"""Row formats that bring what a teacher says of tokens."""
