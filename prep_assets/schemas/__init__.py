"""Schemas: one for each row format of data sets. Importing this package registers them all."""

# ruff: noqa: F401  (each module is imported for what it registers)
from prep_assets.schemas import (
    dialogues,
    distilled,
    instructions,
    logs,
    messages,
    preference,
    rankings,
    regions,
    rewards,
    runs,
    steps,
    text,
    tokenized,
)
