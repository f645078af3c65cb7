"""Tokenized RL prompts, what a rollout starts from: of one domain, and of all as one, with the arithmetic curriculum beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets import arithmetic, rl_prompts
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.alone import prompt_lines
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.merged import MERGED_RECORDS
from prep_assets.assets.checks.prompts import PROMPT_IDENTITY
from prep_assets.assets.checks.selection import LINE_SELECTION
from prep_assets.assets.checks.token_rows import PLAIN_ROWS
from prep_assets.assets.columns import TOKENS as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.configured import prompt_domains
from prep_assets.assets.previews import record_preview
from prep_assets.assets.rl_prompts import TRAIN
from prep_assets.assets.stage import Asset, FromLines, FromParts, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.merging import by_domain, merge_tokens, parts_of
from prep_assets.assets.writing.prompt_tokens import OPTIONS, prompt_tokens_recipe, write_prompt_tokens
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype
from prep_assets.config.models import Rl
from prep_assets.stores.joining import append_store
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import RecordWriter, TokenStore, open_tokens, record_writer

PROMPTS, STREAM = "rl_prompts_by_domain", "prompts"


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's tokenized prompts depend on."""
    return {"domain": name, "prompts": workspace.content(PROMPTS, name), **prompt_tokens_recipe(workspace)}


def _write(workspace: Workspace, name: str, payload: Path, quarantine: Path) -> Draft:
    """Tokenize the training prompts of a domain."""
    directory = open_published(workspace.stores, PROMPTS, name, remedy=build_command(PROMPTS, name)).directory
    return write_prompt_tokens(workspace, directory, TRAIN, STREAM, payload, quarantine, f"tokenize prompts of {name}")


def _all_held_out(workspace: Workspace, name: str) -> bool:
    """Whether all prompts of a domain are held out, so that nothing is left to tokenize."""
    prompts = workspace.published(PROMPTS, name)
    return prompts is not None and prompts.manifest.counts["kept"] > 0


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    audit_stream(payload, STREAM, workspace.vocabulary(workspace.family(Rl)))


BY_DOMAIN = Asset(
    name="rl_tokens_by_domain",
    family="rl",
    description="Training prompts of a domain as token ids, ended by the template's generation prompt.",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(PROMPTS,),
    options=OPTIONS,
    checks=(INTEGRITY, ACCOUNTING, LINE_SELECTION, PLAIN_ROWS, PROMPT_IDENTITY),
    preview=record_preview,
    streams={STREAM: Stream(TokenStore, STREAM)},
    source=FromLines({STREAM: (PROMPTS, TRAIN)}, prompt_lines),
    domains=prompt_domains,
    may_be_empty=_all_held_out,
    columns=COLUMNS,
)


MERGED_PROMPTS, PARTS = rl_prompts.MERGED.name, "rl_tokens_by_domain"
ARITHMETIC = arithmetic.STREAM
QUESTIONS = arithmetic.TOKENS.name


def _depends_on_parts(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized prompts depend on."""
    family = workspace.family(Rl)
    return {
        "prompts": {asset: workspace.content(asset) for asset in (MERGED_PROMPTS, arithmetic.NAME)},
        "domains": {name: workspace.content(PARTS, name) for name in prompt_domains(family)},
        "arithmetic": workspace.content(QUESTIONS),
        "output": family.output.model_dump(),
    }


def _merge(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the tokens of all domains, and those of the curriculum."""
    parts = parts_of(workspace, PARTS, prompt_domains(workspace.family(Rl)))
    questions = open_published(workspace.stores, QUESTIONS, remedy=build_command(QUESTIONS))
    with _writer(workspace, payload, STREAM) as writer:
        merge_tokens(workspace, STREAM, parts, (MERGED_PROMPTS, TRAIN), writer)
    with _writer(workspace, payload, ARITHMETIC) as writer:
        append_store(writer, open_tokens(questions.directory, ARITHMETIC))
    merged = (*parts.values(), questions)
    kept, tokens = (sum(part.manifest.counts[key] for part in merged) for key in ("kept", "tokens"))
    return Draft({"read": kept, "kept": kept, "tokens": tokens, "refused": {}}, {}, ("ids inside the vocabulary",))


def _writer(workspace: Workspace, payload: Path, stream: str) -> RecordWriter:
    family = workspace.family(Rl)
    dtypes, output = {"tokens": ids_dtype(family, workspace.vocabulary(family))}, family.output
    return record_writer(output.storage_format, payload, stream, dtypes, max_tokens_per_shard=output.max_tokens_per_shard)


def _audit_merged(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    for stream in (STREAM, ARITHMETIC):
        audit_stream(payload, stream, vocabulary)


MERGED = Asset(
    name="rl_tokens",
    family="rl",
    description="Training prompts as token ids, ended by the template's generation prompt: what a rollout starts from.",
    version=VERSION,
    depends=_depends_on_parts,
    write=_merge,
    audit=_audit_merged,
    upstream=(PARTS, by_domain(MERGED_PROMPTS), MERGED_PROMPTS, QUESTIONS, arithmetic.NAME),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, PLAIN_ROWS, MERGED_RECORDS),
    preview=record_preview,
    streams={name: Stream(TokenStore, name) for name in (STREAM, ARITHMETIC)},
    source=FromParts((PARTS, QUESTIONS), {STREAM: (MERGED_PROMPTS, TRAIN)}),
    domains=prompt_domains,
    columns=COLUMNS,
)
