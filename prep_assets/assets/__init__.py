"""The asset graph: one file for each asset, and beside them what they read, write and check with. No Dagster, no command line."""
