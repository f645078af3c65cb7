"""Quality steps: rules of published filters, near-duplicates, and golds that verifiers judge."""
