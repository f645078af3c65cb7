"""The asset graph: one file for each family, and questions about all of them."""
