"""From files to records in bounded memory: finding, pinning and reading source files, and the quarantine."""
