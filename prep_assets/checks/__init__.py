"""Published stores against their sources, read again: what each check of the graph looks at, and the corruptions that it must catch."""
