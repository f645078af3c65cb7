"""Row formats with token ids, and with what a teacher says of them."""
