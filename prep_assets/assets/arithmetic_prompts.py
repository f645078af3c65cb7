"""The arithmetic curriculum: generated questions that even a weak policy can partly solve → ``arithmetic_prompts.jsonl``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.prompts import arithmetic_golds
from prep_assets.assets.checks.source_match import matched_questions, source_match
from prep_assets.assets.columns import PROMPTS as COLUMNS
from prep_assets.assets.previews.lines import line_preview
from prep_assets.assets.selftest.lines import question_trials
from prep_assets.assets.stage import Asset, Check, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Rl
from prep_assets.schemas.arithmetic import arithmetic_rows
from prep_assets.schemas.gold import gold_as_json_number
from prep_assets.stores.lines import Lines, LinesWriter
from prep_assets.stores.published import Draft

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


ASSET = Asset(
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
        Check("source_match", "The questions are those that the options give, in their order.", partial(source_match, matched_questions)),
    ),
    preview=line_preview,
    selftest=question_trials,
    streams={NAME: Stream(Lines, NAME)},
    kind="json",
    columns=COLUMNS,
)
