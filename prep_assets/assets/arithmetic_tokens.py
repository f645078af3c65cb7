"""The arithmetic curriculum as token ids: what a rollout starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets.arithmetic_prompts import NAME as PROMPTS
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.alone import prompt_lines
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.prompts import PROMPT_IDENTITY
from prep_assets.assets.checks.selection import LINE_SELECTION
from prep_assets.assets.checks.token_rows import PLAIN_ROWS
from prep_assets.assets.columns import TOKENS as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.previews.tokens import record_preview
from prep_assets.assets.selftest.tokens import prompt_token_trials
from prep_assets.assets.stage import Asset, FromLines, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.prompt_tokens import OPTIONS, prompt_tokens_recipe, write_prompt_tokens
from prep_assets.assets.writing.tokens import audit_stream
from prep_assets.config.models import Rl
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import TokenStore

STREAM = "arithmetic"


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized questions depend on."""
    return {"prompts": workspace.content(PROMPTS), **prompt_tokens_recipe(workspace)}


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Tokenize the curriculum."""
    directory = open_published(workspace.stores, PROMPTS, remedy=build_command(PROMPTS)).directory
    return write_prompt_tokens(workspace, directory, PROMPTS, STREAM, payload, quarantine, "tokenize arithmetic")


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    audit_stream(payload, STREAM, workspace.vocabulary(workspace.family(Rl)))


ASSET = Asset(
    name="arithmetic_tokens",
    family="rl",
    description="The arithmetic curriculum as token ids, ended by the template's generation prompt.",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    upstream=(PROMPTS,),
    options=OPTIONS,
    checks=(INTEGRITY, ACCOUNTING, LINE_SELECTION, PLAIN_ROWS, PROMPT_IDENTITY),
    preview=record_preview,
    selftest=prompt_token_trials,
    streams={STREAM: Stream(TokenStore, STREAM)},
    source=FromLines({STREAM: (PROMPTS, PROMPTS)}, prompt_lines),
    domains=lambda family: (),
    columns=COLUMNS,
)
