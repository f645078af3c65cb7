"""Verdicts of quality steps on the rows of every family, and the steps: rules of published filters, near-duplicates, and golds that verifiers judge."""
