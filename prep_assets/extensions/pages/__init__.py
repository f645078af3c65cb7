"""Pages about stores: reports as files, a local server of them, and the search over whole stores."""
