"""What the web UI shows of each asset beside its name: kinds, a description, columns."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from prep_assets.defs.columns import GROUPS, MASKED_TOKENS, PACKED, PAIRS, PROMPTS, SOURCES, TOKENS

FORMAT_KINDS = {"cerebras": "hdf5", "hf_arrow": "huggingface", "packed_parquet": "parquet", "tlfs": "hdf5", "verl": "parquet"}
"""Kind of an export, by its format; raw arrays where nothing is said."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of one asset.

    Attributes:
        kind: an icon beside the name.
        description: Markdown; its first line is short.
        columns: of the store.
    """

    kind: str
    description: str
    columns: tuple[dg.TableColumn, ...] = ()


SHOWN = {
    "pretrain_raw": Shown(
        "file",
        """Source files of pretraining documents, pinned by content hash.

Nothing is copied: the store lists names, sizes, hashes and row counts, and quarantine lists every row that cannot be read.""",
        SOURCES,
    ),
    "pretrain_tokens": Shown(
        "numpy",
        """One flat token stream per domain, an end-of-text token after every document.

Trainers read `<domain>_train.h5` (dataset `tokens`) or `<domain>_train/shard_0000/sequence.bin`.""",
        TOKENS,
    ),
    "sft_raw": Shown("file", "Source files of instructions and chats, pinned by content hash.", SOURCES),
    "sft_template": Shown(
        "json", "Certificate of the chat template: what it makes of system prompts, reasoning and tools, and how masks are proven."
    ),
    "sft_tokens": Shown(
        "numpy",
        """Token ids and loss mask of every conversation, one store per domain.

Each conversation is rendered once by the chat template and tokenized once; the mask follows from where its regions stand in the render.""",
        MASKED_TOKENS,
    ),
    "sft_packed": Shown(
        "hdf5",
        """All domains mixed and packed into rows of one length, tokens and loss mask aligned.

Trainers read `sft_packed.h5` (datasets `tokens` and `loss_mask`, both (N, row_len)); `sft_packed.documents` says which record is where.""",
        PACKED,
    ),
    "preference_raw": Shown("file", "Source files of preference pairs, pinned by content hash.", SOURCES),
    "preferences": Shown(
        "json",
        """Pairs of all domains as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.""",
        PAIRS,
    ),
    "preference_tokens": Shown(
        "numpy", "Both sides of every training pair as token ids, loss on the answer and its stop token only.", MASKED_TOKENS
    ),
    "rl_raw": Shown("file", "Source files of questions with known answers, pinned by content hash.", SOURCES),
    "rl_prompts": Shown("json", "Prompts with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.", PROMPTS),
    "arithmetic_prompts": Shown("json", "A seeded curriculum of arithmetic questions that even a weak policy can partly solve.", PROMPTS),
    "rl_tokens": Shown(
        "numpy", "Training prompts as token ids, ended by the template's generation prompt: what a rollout starts from.", TOKENS
    ),
    "rl_groups": Shown(
        "numpy", "Prompts with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.", GROUPS
    ),
}


def shown_export(source: str, format: str, stream: str) -> Shown:
    """What is shown of an export."""
    from prep_assets.exports import exports

    return Shown(FORMAT_KINDS.get(format, "numpy"), f"{source} as files of {format}, {stream}.\n\n{exports()[format].summary}")
