"""Code versions. One counts up when the same input gives other bytes; it is part of every recipe, and Dagster's `code_version`."""

RAW = "3"
PRETRAIN = "5"
SFT = "5"
PREFERENCE = "7"
RL = "4"
EXPORT = "5"
