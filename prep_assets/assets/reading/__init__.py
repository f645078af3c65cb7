"""One domain, from its source files to examples: routing, duplicates, held-out rows, decontamination."""
