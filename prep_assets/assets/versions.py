"""Code versions. One counts up when the same input gives other bytes; it is part of every recipe, and Dagster's `code_version`."""

RAW = "1"
PRETRAIN = "4"
SFT = "3"
PREFERENCE = "5"
RL = "3"
EXPORT = "4"
