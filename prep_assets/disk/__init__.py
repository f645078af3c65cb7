"""Files that are proven: what was meant to be written, what the disk gives back, and what to say when it does not work."""
