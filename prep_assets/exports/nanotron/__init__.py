"""datatrove's ``.ds`` files, which nanotron's Nanoset reads."""
