"""Code versions. One counts up when the same input gives other bytes; it is part of every recipe, and Dagster's `code_version`."""

RAW = "3"
PRETRAIN = "6"
SFT = "7"
PREFERENCE = "10"
RL = "6"
CONTRASTIVE = "2"
EXPORT = "5"
