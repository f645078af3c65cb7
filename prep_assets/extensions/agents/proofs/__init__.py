"""Rules about rows of the extension `agents`."""
