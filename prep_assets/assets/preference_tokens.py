"""Tokenized preferences of all domains as one, in the order of ``preferences.jsonl``; see `preference_tokens_by_domain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.merged import MERGED_RECORDS
from prep_assets.assets.checks.token_rows import token_rows
from prep_assets.assets.columns import MASKED_TOKENS as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.preference_tokens_by_domain import FILES, HELD_OUT, STREAMS
from prep_assets.assets.previews.tokens import record_preview
from prep_assets.assets.selftest.merged import merged_record_trials
from prep_assets.assets.stage import Asset, Check, FromParts, Stream
from prep_assets.assets.versions import PREFERENCE as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import add
from prep_assets.assets.writing.merging import by_domain, merge_tokens, parts_of
from prep_assets.assets.writing.pairs import SIDES
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype
from prep_assets.config.models import Preference
from prep_assets.errors import StoreError
from prep_assets.exports.source import Pairs
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import TokenStore, record_writer

PAIRS, PARTS = "preferences", "preference_tokens_by_domain"
LINES = {stream: (PAIRS, file) for stream, file in STREAMS.items()}


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized pairs depend on."""
    family = workspace.family(Preference)
    return {
        "pairs": workspace.content(PAIRS),
        "domains": {name: workspace.content(PARTS, name) for name in sorted(family.domains)},
        "output": family.output.model_dump(),
    }


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
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
    pairs = open_published(workspace.stores, PAIRS, remedy=build_command(PAIRS))
    return [folder for folder in FILES if not folder or pairs.manifest.counts["test"]]


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    for folder in _folders(workspace):
        chosen, rejected = (audit_stream(payload / folder, side, vocabulary) for side in SIDES)
        if not np.array_equal(chosen.row, rejected.row):
            raise StoreError(f"{folder}chosen and {folder}rejected do not hold the same pairs")


def _only_unpaired(workspace: Workspace, _: str) -> bool:
    """Whether all preferences are labelled answers, so that there is no pair to tokenize."""
    pairs = workspace.published(PAIRS)
    counts = pairs.manifest.counts if pairs else {}
    labelled = counts.get("unpaired_train", 0) + counts.get("unpaired_test", 0)
    return labelled > 0 and not counts["train"] + counts["test"]


ASSET = Asset(
    name="preference_tokens",
    family="preference",
    description="""Both sides of every pair of all domains as token ids, loss on the answer and its stop token only.

Pairs that are held out are in the folder `test`.""",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    upstream=(PARTS, by_domain(PAIRS), PAIRS),
    options=("output",),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check("row_integrity", "Ids are inside the vocabulary, and both sides of every pair train something.", token_rows),
        MERGED_RECORDS,
    ),
    preview=record_preview,
    selftest=merged_record_trials,
    streams={
        "pairs": Stream(Pairs, None),
        HELD_OUT: Stream(Pairs, HELD_OUT),
        **{name: Stream(TokenStore, name, masked=True) for name in STREAMS},
    },
    source=FromParts((PARTS,), LINES),
    may_be_empty=_only_unpaired,
    columns=COLUMNS,
)
