"""Schemas: one for each way in which data sets write their rows. Importing this package registers them all."""

# ruff: noqa: F401  (each module is imported for what it registers)
from prep_assets.schemas import (
    alpaca,
    arithmetic,
    common_words_mask,
    contrastive,
    group,
    gsm8k,
    hh,
    interleaved,
    llama3_chat,
    llava,
    messages,
    modellink,
    moss,
    preference,
    prompt_completion,
    rl_prompt,
    sections,
    semantic,
    sharegpt,
    text,
    tokenized,
    ultrafeedback,
)
