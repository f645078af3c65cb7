"""Tokenized preferences, of one domain and of all as one, in the order of ``preferences.jsonl``.

Both sides of every pair are token ids with masks; pairs that are held out are in the folder ``test``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.alone import pair_lines
from prep_assets.assets.checks.conversations import Sides
from prep_assets.assets.checks.every_store import IDENTITY, INTEGRITY
from prep_assets.assets.checks.merged import MERGED_RECORDS
from prep_assets.assets.checks.selection import LINE_SELECTION
from prep_assets.assets.checks.token_rows import token_rows
from prep_assets.assets.checks.verification import derived
from prep_assets.assets.columns import MASKED_TOKENS as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.options import REASONING, TEMPLATE
from prep_assets.assets.preferences import TEST, TRAIN
from prep_assets.assets.previews import record_preview
from prep_assets.assets.reading.reasoning import reasoning_recipe
from prep_assets.assets.stage import Asset, Check, FromLines, FromParts, Stream
from prep_assets.assets.versions import PREFERENCE as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import Streams, add
from prep_assets.assets.writing.lines_in_shards import Batch, encode_lines
from prep_assets.assets.writing.merging import by_domain, merge_tokens, parts_of
from prep_assets.assets.writing.pairs import SIDES, PairEncoder
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.config.models import Preference
from prep_assets.errors import StoreError
from prep_assets.exports.source import Pairs
from prep_assets.proofs.pair_columns import PAIR_FIELDS
from prep_assets.records.quarantine import Quarantine
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import RecordWriter, TokenStore, record_writer

PAIRS, HELD_OUT = "preferences_by_domain", "test"
FILES = {"": TRAIN, f"{HELD_OUT}/": TEST}
"""Folder of a pair of streams → the file whose lines they hold."""
STREAMS = {f"{folder}{side}": name for folder, name in FILES.items() for side in SIDES}
"""Stream → the file whose lines it holds."""


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's tokenized pairs depend on."""
    family = workspace.family(Preference)
    return {
        "domain": name,
        "pairs": workspace.content(PAIRS, name),
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "truncation": family.truncation,
        "output": family.output.model_dump(include={"dtype", "max_tokens_per_shard"}),
    }


def _write(workspace: Workspace, domain: str, payload: Path, quarantine_path: Path) -> Draft:
    """Tokenize both sides of every pair through the chat template; loss on the answer and its stop token only.

    The store is always `bin`, as `sft_tokens` is.
    """
    family = workspace.family(Preference)
    directory = open_published(workspace.stores, PAIRS, domain, remedy=build_command(PAIRS, domain)).directory
    dtype, shard = ids_dtype(family, workspace.vocabulary(family)), family.output.max_tokens_per_shard
    dtypes, counts = {side: {"tokens": dtype, "loss_mask": "uint8"} for side in SIDES}, dict[str, int]()
    with Quarantine(quarantine_path) as quarantine:
        for folder, name in FILES.items():
            lines = open_lines(directory, name)
            if folder and not len(lines):
                continue
            (payload / folder).mkdir(exist_ok=True)
            with ExitStack() as stack:
                open_writer = partial(record_writer, "bin", payload / folder, max_tokens_per_shard=shard)
                writers = {side: stack.enter_context(open_writer(side, dtypes[side])) for side in SIDES}
                streams = Streams(payload, dtypes, writers, quarantine)
                found = encode_lines(workspace, family, f"tokenize pairs of {domain}", lines, partial(_encode, name=name), streams)
            add(counts, {**found, **({"kept_test": found["kept"]} if folder else {})})
        refused = quarantine.counts
    return Draft({**counts, "refused": refused}, {}, ("ids inside the vocabulary", "both sides have the same records"))


def _encode(
    workspace: Workspace, batches: Iterator[Batch], writers: Sequence[RecordWriter], quarantine: Quarantine, *, name: str
) -> dict[str, Any]:
    """Tokenize and write pairs; see `EncodeLines`.

    Args:
        name: of their file.
    """
    encoder, counts = PairEncoder(workspace), {"read": 0, "kept": 0, "tokens": 0, "trained_tokens": 0}
    for first, batch in batches:
        counts["read"] += len(batch)
        kept, sides = encoder.encode(batch, first, quarantine, name=name)
        counts["kept"] += len(kept)
        rows = [first + i for i in kept]
        for side, writer in zip(SIDES, writers, strict=True):
            ids, mask, lengths, taken = sides[side]
            writer.append({"tokens": ids, "loss_mask": mask}, lengths, [0] * len(rows), rows)
            counts["tokens"] += len(ids)
            counts["trained_tokens"] += int(mask.sum())
            if taken:
                counts["tokens_cut_away"] = counts.get("tokens_cut_away", 0) + taken
    return counts


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    for folder in FILES:
        if folder and not (payload / folder).is_dir():
            continue
        chosen, rejected = (audit_stream(payload / folder, side, vocabulary) for side in SIDES)
        if not np.array_equal(chosen.row, rejected.row):
            raise StoreError(f"{folder}chosen and {folder}rejected do not hold the same pairs")


def _only_others(workspace: Workspace, name: str) -> bool:
    """Whether a domain's preferences are all labelled answers, so that there is no pair to tokenize."""
    pairs = workspace.published(PAIRS, name)
    counts = pairs.manifest.counts if pairs else {}
    return counts.get("kept", 0) > 0 and not counts["train"] + counts["test"]


BY_DOMAIN = Asset(
    name="preference_tokens_by_domain",
    family="preference",
    description="""Both sides of every pair of a domain as token ids, loss on the answer and its stop token only.

Pairs that are held out are in the folder `test`.""",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(PAIRS,),
    options=(*TEMPLATE, *REASONING, "preprocessing.max_seq_len", "truncation", "output.dtype", "output.max_tokens_per_shard"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        LINE_SELECTION,
        Check("row_integrity", "Ids are inside the vocabulary, and both sides of every pair train something.", token_rows),
        derived("mask_alignment", "Trained tokens of both sides decode to exactly the answers and their stop token."),
        derived("tokenization_identity", IDENTITY),
    ),
    derivations=(Sides,),
    preview=record_preview,
    streams={
        "pairs": Stream(Pairs, None),
        HELD_OUT: Stream(Pairs, HELD_OUT),
        **{name: Stream(TokenStore, name, masked=True) for name in STREAMS},
    },
    source=FromLines({f"{folder}chosen": (PAIRS, name) for folder, name in FILES.items()}, pair_lines, PAIR_FIELDS),
    may_be_empty=_only_others,
    columns=COLUMNS,
)


MERGED_PAIRS, PARTS = "preferences", "preference_tokens_by_domain"
LINES = {stream: (MERGED_PAIRS, file) for stream, file in STREAMS.items()}


def _depends_on_parts(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized pairs depend on."""
    family = workspace.family(Preference)
    return {
        "pairs": workspace.content(MERGED_PAIRS),
        "domains": {name: workspace.content(PARTS, name) for name in sorted(family.domains)},
        "output": family.output.model_dump(),
    }


def _merge(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the tokens of all domains, both sides of each pair."""
    family = workspace.family(Preference)
    parts = parts_of(workspace, PARTS, sorted(family.domains))
    dtypes = {"tokens": ids_dtype(family, workspace.vocabulary(family)), "loss_mask": "uint8"}
    shard = family.output.max_tokens_per_shard
    for folder in _folders(workspace):
        (payload / folder).mkdir(exist_ok=True)
        for side in SIDES:
            with record_writer(family.output.storage_format, payload / folder, side, dtypes, max_tokens_per_shard=shard) as writer:
                merge_tokens(workspace, f"{folder}{side}", parts, LINES[f"{folder}{side}"], writer)
    counts: dict[str, Any] = {}
    for part in parts.values():
        add(counts, {key: value for key, value in part.manifest.counts.items() if isinstance(value, int)})
    counted = {**counts, "read": counts["kept"], "refused": {}}
    return Draft(counted, {}, ("ids inside the vocabulary", "both sides have the same records"))


def _folders(workspace: Workspace) -> list[str]:
    """Where there are pairs: the store itself, and the folder of those held out."""
    pairs = open_published(workspace.stores, MERGED_PAIRS, remedy=build_command(MERGED_PAIRS))
    return [folder for folder in FILES if not folder or pairs.manifest.counts["test"]]


def _audit_merged(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    for folder in _folders(workspace):
        chosen, rejected = (audit_stream(payload / folder, side, vocabulary) for side in SIDES)
        if not np.array_equal(chosen.row, rejected.row):
            raise StoreError(f"{folder}chosen and {folder}rejected do not hold the same pairs")


def _only_unpaired(workspace: Workspace, _: str) -> bool:
    """Whether all preferences are labelled answers, so that there is no pair to tokenize."""
    pairs = workspace.published(MERGED_PAIRS)
    counts = pairs.manifest.counts if pairs else {}
    labelled = counts.get("unpaired_train", 0) + counts.get("unpaired_test", 0)
    return labelled > 0 and not counts["train"] + counts["test"]


MERGED = Asset(
    name="preference_tokens",
    family="preference",
    description="""Both sides of every pair of all domains as token ids, loss on the answer and its stop token only.

Pairs that are held out are in the folder `test`.""",
    version=VERSION,
    depends=_depends_on_parts,
    write=_merge,
    audit=_audit_merged,
    upstream=(PARTS, by_domain(MERGED_PAIRS), MERGED_PAIRS),
    options=("output",),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check("row_integrity", "Ids are inside the vocabulary, and both sides of every pair train something.", token_rows),
        MERGED_RECORDS,
    ),
    preview=record_preview,
    streams={
        "pairs": Stream(Pairs, None),
        HELD_OUT: Stream(Pairs, HELD_OUT),
        **{name: Stream(TokenStore, name, masked=True) for name in STREAMS},
    },
    source=FromParts((PARTS,), LINES),
    may_be_empty=_only_unpaired,
    columns=COLUMNS,
)
