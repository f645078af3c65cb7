"""Rules about rows of the extension `datasets`."""
