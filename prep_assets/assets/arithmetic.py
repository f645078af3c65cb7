"""The arithmetic curriculum: generated questions that even a weak policy can partly solve → ``arithmetic_prompts.jsonl``, and their token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.alone import prompt_lines
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.prompts import PROMPT_IDENTITY, arithmetic_golds
from prep_assets.assets.checks.selection import LINE_SELECTION
from prep_assets.assets.checks.source_match import questions_match
from prep_assets.assets.checks.token_rows import PLAIN_ROWS
from prep_assets.assets.columns import PROMPTS as PROMPT_COLUMNS
from prep_assets.assets.columns import TOKENS as TOKEN_COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.previews import line_preview, record_preview
from prep_assets.assets.stage import Asset, Check, FromLines, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.prompt_tokens import OPTIONS, prompt_tokens_recipe, write_prompt_tokens
from prep_assets.assets.writing.tokens import audit_stream
from prep_assets.config.models import Rl
from prep_assets.schemas.arithmetic import arithmetic_rows
from prep_assets.schemas.gold import gold_as_json_number
from prep_assets.stores.lines import Lines, LinesWriter
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import TokenStore

NAME = "arithmetic_prompts"


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    return workspace.family(Rl).arithmetic.model_dump()


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Generate the curriculum."""
    options = workspace.family(Rl).arithmetic
    levels: dict[str, int] = {}
    chosen = {} if options.levels is None else {"levels": options.levels}
    with LinesWriter(payload, NAME, ("arithmetic",)) as lines:
        for at, row in enumerate(arithmetic_rows(options.n, options.largest, options.seed, unique=options.unique, **chosen)):
            level = str(row["level"])
            levels[level] = levels.get(level, 0) + 1
            shown = {"prompt": row["prompt"], "gold": gold_as_json_number(str(row["gold"]))}
            if options.levels is not None:
                shown["level"] = level
            lines.append(shown, source=0, file=0, at=at)
        count = len(lines)
    return Draft({"read": count, "kept": count, "refused": {}, **{f"level_{name}": n for name, n in levels.items()}}, {}, ())


PROMPTS = Asset(
    name=NAME,
    family="rl",
    description="A seeded curriculum of arithmetic questions that even a weak policy can partly solve.",
    version=VERSION,
    depends=_depends,
    write=_write,
    options=("arithmetic",),
    checks=(
        INTEGRITY,
        Check("gold_answers", "Every gold equals its question worked out exactly.", arithmetic_golds),
        Check("source_match", "The questions are those that the options give, in their order.", questions_match),
    ),
    preview=line_preview,
    streams={NAME: Stream(Lines, NAME)},
    kind="json",
    columns=PROMPT_COLUMNS,
)


STREAM = "arithmetic"


def _depends_on_prompts(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized questions depend on."""
    return {"prompts": workspace.content(NAME), **prompt_tokens_recipe(workspace)}


def _tokenize(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Tokenize the curriculum."""
    directory = open_published(workspace.stores, NAME, remedy=build_command(NAME)).directory
    return write_prompt_tokens(workspace, directory, NAME, STREAM, payload, quarantine, "tokenize arithmetic")


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    audit_stream(payload, STREAM, workspace.vocabulary(workspace.family(Rl)))


TOKENS = Asset(
    name="arithmetic_tokens",
    family="rl",
    description="The arithmetic curriculum as token ids, ended by the template's generation prompt.",
    version=VERSION,
    depends=_depends_on_prompts,
    write=_tokenize,
    audit=_audit,
    upstream=(NAME,),
    options=OPTIONS,
    checks=(INTEGRITY, ACCOUNTING, LINE_SELECTION, PLAIN_ROWS, PROMPT_IDENTITY),
    preview=record_preview,
    streams={STREAM: Stream(TokenStore, STREAM)},
    source=FromLines({STREAM: (NAME, NAME)}, prompt_lines),
    domains=lambda family: (),
    columns=TOKEN_COLUMNS,
)
