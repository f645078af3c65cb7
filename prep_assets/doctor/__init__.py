"""What a trainer's own preparation makes of rows, beside ours: which labels differ, and why."""
