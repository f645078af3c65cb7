"""How many tokens a file has, and where they are: derived a second time."""
