"""Row formats of one published data set each."""
