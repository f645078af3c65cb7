"""The four families, each a composition of the rooms below. No Dagster, no command line."""
