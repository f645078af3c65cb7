"""Lines of prompts → token ids, ended by the template's generation prompt: what a rollout starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.options import REASONING, TEMPLATE
from prep_assets.assets.reading.reasoning import inline_reasoning, reasoning_recipe
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import Streams, add
from prep_assets.assets.writing.lines_in_shards import Batch, encode_lines
from prep_assets.assets.writing.prompts import generation_prompt, prompt_encoder
from prep_assets.assets.writing.tokens import ids_dtype, tokenizer_recipe
from prep_assets.config.models import Rl
from prep_assets.errors import Refused
from prep_assets.records.quarantine import Quarantine
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Draft
from prep_assets.stores.tokens import RecordWriter, record_writer

OPTIONS = (*TEMPLATE, *REASONING, "preprocessing.max_seq_len", "output.dtype", "output.max_tokens_per_shard")
"""The options that `prompt_tokens_recipe` reads."""


def prompt_tokens_recipe(workspace: Workspace) -> dict[str, Any]:
    """What tokenized prompts depend on, beside the prompts."""
    family = workspace.family(Rl)
    return {
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(include={"dtype", "max_tokens_per_shard"}),
    }


def write_prompt_tokens(
    workspace: Workspace, directory: Path, name: str, stream: str, payload: Path, quarantine_path: Path, doing: str
) -> Draft:
    """Tokenize the lines of the file `name` in a folder. The store is always `bin`, as `sft_tokens` is.

    Args:
        doing: what progress is about.
    """
    family = workspace.family(Rl)
    dtypes, shard = {"tokens": ids_dtype(family, workspace.vocabulary(family))}, family.output.max_tokens_per_shard
    with Quarantine(quarantine_path) as quarantine:
        with record_writer("bin", payload, stream, dtypes, max_tokens_per_shard=shard) as writer:
            streams = Streams(payload, {stream: dtypes}, {stream: writer}, quarantine)
            counts = encode_lines(workspace, family, doing, open_lines(directory, name), partial(_encode, name=name), streams)
        refused = quarantine.counts
    return Draft({**counts, "refused": refused}, {}, ("ids inside the vocabulary",))


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
