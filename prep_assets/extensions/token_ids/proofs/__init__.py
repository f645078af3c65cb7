"""Rules about rows of the extension `token_ids`."""
