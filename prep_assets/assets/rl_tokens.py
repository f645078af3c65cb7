"""Tokenized RL prompts of all domains as one, in the order of ``rl_prompts_train.jsonl``, and the arithmetic curriculum beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets import arithmetic_prompts, arithmetic_tokens, rl_prompts, rl_tokens_by_domain
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.merged import MERGED_RECORDS
from prep_assets.assets.checks.token_rows import PLAIN_ROWS
from prep_assets.assets.columns import TOKENS as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.previews.tokens import record_preview
from prep_assets.assets.reading.rl_domains import prompt_domains
from prep_assets.assets.rl_prompts_by_domain import TRAIN
from prep_assets.assets.selftest.merged import merged_record_trials
from prep_assets.assets.stage import Asset, FromParts, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.merging import by_domain, merge_tokens, parts_of
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype
from prep_assets.config.models import Rl
from prep_assets.stores.joining import append_store
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import RecordWriter, TokenStore, open_tokens, record_writer

PROMPTS, PARTS = rl_prompts.ASSET.name, rl_tokens_by_domain.ASSET.name
STREAM, ARITHMETIC = rl_tokens_by_domain.STREAM, arithmetic_tokens.STREAM
QUESTIONS = arithmetic_tokens.ASSET.name


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized prompts depend on."""
    family = workspace.family(Rl)
    return {
        "prompts": {asset: workspace.content(asset) for asset in (PROMPTS, arithmetic_prompts.NAME)},
        "domains": {name: workspace.content(PARTS, name) for name in prompt_domains(family)},
        "arithmetic": workspace.content(QUESTIONS),
        "output": family.output.model_dump(),
    }


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the tokens of all domains, and those of the curriculum."""
    parts = parts_of(workspace, PARTS, prompt_domains(workspace.family(Rl)))
    questions = open_published(workspace.stores, QUESTIONS, remedy=build_command(QUESTIONS))
    with _writer(workspace, payload, STREAM) as writer:
        merge_tokens(workspace, STREAM, parts, (PROMPTS, TRAIN), writer)
    with _writer(workspace, payload, ARITHMETIC) as writer:
        append_store(writer, open_tokens(questions.directory, ARITHMETIC))
    merged = (*parts.values(), questions)
    kept, tokens = (sum(part.manifest.counts[key] for part in merged) for key in ("kept", "tokens"))
    return Draft({"read": kept, "kept": kept, "tokens": tokens, "refused": {}}, {}, ("ids inside the vocabulary",))


def _writer(workspace: Workspace, payload: Path, stream: str) -> RecordWriter:
    family = workspace.family(Rl)
    dtypes, output = {"tokens": ids_dtype(family, workspace.vocabulary(family))}, family.output
    return record_writer(output.storage_format, payload, stream, dtypes, max_tokens_per_shard=output.max_tokens_per_shard)


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    for stream in (STREAM, ARITHMETIC):
        audit_stream(payload, stream, vocabulary)


ASSET = Asset(
    name="rl_tokens",
    family="rl",
    description="Training prompts as token ids, ended by the template's generation prompt: what a rollout starts from.",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    upstream=(PARTS, by_domain(PROMPTS), PROMPTS, QUESTIONS, arithmetic_prompts.NAME),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, PLAIN_ROWS, MERGED_RECORDS),
    preview=record_preview,
    selftest=merged_record_trials,
    streams={name: Stream(TokenStore, name) for name in (STREAM, ARITHMETIC)},
    source=FromParts((PARTS, QUESTIONS), {STREAM: (PROMPTS, TRAIN)}),
    domains=prompt_domains,
    columns=COLUMNS,
)
