"""Rules about rows of the extension `cerebras`."""
