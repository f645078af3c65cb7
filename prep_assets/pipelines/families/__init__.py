"""The families: what each asset writes, and what that depends on."""
