"""Tokenized RL prompts: what a rollout starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.alone import prompt_lines
from prep_assets.assets.checks.every_store import IDENTITY, INTEGRITY
from prep_assets.assets.checks.prompts import prompt_identity
from prep_assets.assets.checks.selection import LINE_SELECTION
from prep_assets.assets.checks.token_rows import token_rows
from prep_assets.assets.columns import TOKENS as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.options import REASONING, TEMPLATE
from prep_assets.assets.previews.tokens import record_preview
from prep_assets.assets.reading.reasoning import inline_reasoning, reasoning_recipe
from prep_assets.assets.selftest.tokens import prompt_token_trials
from prep_assets.assets.stage import Asset, Check, FromLines, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import Streams, add
from prep_assets.assets.writing.lines_in_shards import Batch, encode_lines
from prep_assets.assets.writing.prompts import generation_prompt, prompt_encoder
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.config.models import Rl
from prep_assets.errors import Refused
from prep_assets.records.quarantine import Quarantine
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import RecordWriter, TokenStore, record_writer

PROMPTS, ARITHMETIC = "rl_prompts", "arithmetic_prompts"
FILES = {"prompts": (PROMPTS, "rl_prompts_train"), "arithmetic": (ARITHMETIC, ARITHMETIC)}
"""Stream → the asset and the file whose lines it holds."""


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized prompts depend on."""
    family = workspace.family(Rl)
    return {
        "prompts": {asset: workspace.content(asset) for asset in (PROMPTS, ARITHMETIC)},
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(),
    }


def _write(workspace: Workspace, _: str, payload: Path, quarantine_path: Path) -> Draft:
    """Tokenize the training prompts, ended by the template's generation prompt: what a rollout starts from."""
    family, counts = workspace.family(Rl), dict[str, int]()
    dtypes, shard = {"tokens": ids_dtype(family, workspace.vocabulary(family))}, family.output.max_tokens_per_shard
    with Quarantine(quarantine_path) as quarantine:
        for stream, (asset, name) in FILES.items():
            lines = open_lines(open_published(workspace.stores, asset, remedy=build_command(asset)).directory, name)
            with record_writer(family.output.storage_format, payload, stream, dtypes, max_tokens_per_shard=shard) as writer:
                streams = Streams(payload, {stream: dtypes}, {stream: writer}, quarantine)
                add(counts, encode_lines(workspace, family, f"tokenize {stream}", lines, partial(_encode, name=name), streams))
        refused = quarantine.counts
    return Draft({**counts, "refused": refused}, {}, ("ids inside the vocabulary",))


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    for stream in FILES:
        audit_stream(payload, stream, vocabulary)


def _encode(
    workspace: Workspace, batches: Iterator[Batch], writers: Sequence[RecordWriter], quarantine: Quarantine, *, name: str
) -> dict[str, Any]:
    """Tokenize and write prompts; see `EncodeLines`.

    Args:
        name: of their file.
    """
    family, [writer] = workspace.family(Rl), writers
    template, reasoning, encoder = workspace.template(family), inline_reasoning(workspace, family), prompt_encoder(workspace)
    counts = {"read": 0, "kept": 0, "tokens": 0}
    for first, batch in batches:
        rendered, at = [], []
        with quarantine.by_row():
            for row, content in enumerate(batch, first):
                try:
                    rendered.append(generation_prompt(template, reasoning, content))
                    at.append((row, content))
                except Refused as refusal:
                    quarantine.add(f"{name}.jsonl:{row}", refusal.stage, refusal.reason, refusal.detail, content)
            encoded = encoder.encode(rendered)
            for position, why in encoded.refused:
                row, content = at[position]
                quarantine.add(f"{name}.jsonl:{row}", why.stage, why.reason, why.detail, content)
        rows = [at[int(i)][0] for i in encoded.kept]
        writer.append({"tokens": encoded.ids}, np.diff(encoded.offsets), [0] * len(rows), rows)
        add(counts, {"read": len(batch), "kept": len(rows), "tokens": len(encoded.ids)})
    return counts


ASSET = Asset(
    name="rl_tokens",
    family="rl",
    description="Training prompts as token ids, ended by the template's generation prompt: what a rollout starts from.",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    upstream=(PROMPTS, ARITHMETIC),
    options=(*TEMPLATE, *REASONING, "preprocessing.max_seq_len", "output"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        LINE_SELECTION,
        Check("row_integrity", "Ids are inside the vocabulary.", token_rows),
        Check("tokenization_identity", IDENTITY, prompt_identity),
    ),
    preview=record_preview,
    selftest=prompt_token_trials,
    streams={name: Stream(TokenStore, name) for name in FILES},
    source=FromLines(FILES, prompt_lines),
    columns=COLUMNS,
)
