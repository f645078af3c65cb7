"""Files to Records, in bounded memory: finding, pinning and reading source files, and the quarantine of what is refused."""
