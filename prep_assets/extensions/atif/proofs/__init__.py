"""Rules about rows of the extension `atif`, and what must hold of traces with ids."""
