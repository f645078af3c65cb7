"""Rules about rows of the extension `sessions`."""
