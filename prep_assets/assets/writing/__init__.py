"""How the payloads of stores are written: samples → rows, tokens, groups, images."""
