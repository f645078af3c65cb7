"""Tokenized RL prompts of one domain: what a rollout starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.alone import prompt_lines
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.prompts import PROMPT_IDENTITY
from prep_assets.assets.checks.selection import LINE_SELECTION
from prep_assets.assets.checks.token_rows import PLAIN_ROWS
from prep_assets.assets.columns import TOKENS as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.previews.tokens import record_preview
from prep_assets.assets.reading.rl_domains import prompt_domains
from prep_assets.assets.rl_prompts_by_domain import TRAIN
from prep_assets.assets.selftest.tokens import prompt_token_trials
from prep_assets.assets.stage import Asset, FromLines, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.prompt_tokens import OPTIONS, prompt_tokens_recipe, write_prompt_tokens
from prep_assets.assets.writing.tokens import audit_stream
from prep_assets.config.models import Rl
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import TokenStore

PROMPTS, STREAM = "rl_prompts_by_domain", "prompts"


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's tokenized prompts depend on."""
    return {"domain": name, "prompts": workspace.content(PROMPTS, name), **prompt_tokens_recipe(workspace)}


def _write(workspace: Workspace, name: str, payload: Path, quarantine: Path) -> Draft:
    """Tokenize the training prompts of a domain."""
    directory = open_published(workspace.stores, PROMPTS, name, remedy=build_command(PROMPTS, name)).directory
    return write_prompt_tokens(workspace, directory, TRAIN, STREAM, payload, quarantine, f"tokenize prompts of {name}")


def _all_held_out(workspace: Workspace, name: str) -> bool:
    """Whether a domain's prompts are all held out, so that there is none to tokenize."""
    prompts = workspace.published(PROMPTS, name)
    return prompts is not None and prompts.manifest.counts["kept"] > 0


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    audit_stream(payload, STREAM, workspace.vocabulary(workspace.family(Rl)))


ASSET = Asset(
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
    selftest=prompt_token_trials,
    streams={STREAM: Stream(TokenStore, STREAM)},
    source=FromLines({STREAM: (PROMPTS, TRAIN)}, prompt_lines),
    domains=prompt_domains,
    may_be_empty=_all_held_out,
    columns=COLUMNS,
)
