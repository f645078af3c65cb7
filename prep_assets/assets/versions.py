"""Code versions. One counts up when the same input gives other bytes; it is part of every recipe, and Dagster's `code_version`."""

RAW = "3"
PRETRAIN = "7"
SFT = "8"
PREFERENCE = "11"
RL = "7"
CONTRASTIVE = "3"
EXPORT = "5"
