"""What must hold of contrastive rows, derived without the code that makes them."""
