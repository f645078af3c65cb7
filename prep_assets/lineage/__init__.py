"""Where each token comes from, where each record went, and what a change of the configuration would change."""
