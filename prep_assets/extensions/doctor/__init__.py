"""Labels of trainers beside ours, by their own code or by rules read from it."""
