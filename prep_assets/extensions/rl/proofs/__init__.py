"""What must hold of prompts and their golds, derived without the code that makes them."""
