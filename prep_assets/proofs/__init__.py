"""What must be true of a store: checks that share no code with what built it. A check takes data and returns a `Verdict`."""
