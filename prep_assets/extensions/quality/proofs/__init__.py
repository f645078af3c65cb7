"""What quality steps must find, and what must hold of texts without private data: without the code that finds and replaces it."""
