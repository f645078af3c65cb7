"""Code versions. One counts up when the same input gives other bytes; it is part of every recipe, and Dagster's `code_version`."""

RAW = "3"
PRETRAIN = "5"
SFT = "6"
PREFERENCE = "9"
RL = "5"
CONTRASTIVE = "1"
EXPORT = "5"
