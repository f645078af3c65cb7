"""What must hold of texts without private data, derived without the code that replaces it."""
