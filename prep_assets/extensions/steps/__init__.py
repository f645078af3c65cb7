"""From a training step to its rows: the record that a training loop writes, and `prep-assets step`, which reads it."""
