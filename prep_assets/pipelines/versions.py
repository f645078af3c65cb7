"""Code versions. One counts up when the same input gives other bytes; it is part of every recipe, and Dagster's `code_version`."""

RAW = "1"
PRETRAIN = "1"
SFT = "1"
PREFERENCE = "2"
RL = "1"
EXPORT = "1"
