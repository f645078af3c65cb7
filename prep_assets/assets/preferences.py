"""Preferences of all domains as one: ``preferences.jsonl``, shuffled, and a held-out test file; see `preferences_by_domain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.merged import MERGED_LINES
from prep_assets.assets.checks.preferences import SANITY
from prep_assets.assets.columns import PAIRS as COLUMNS
from prep_assets.assets.preferences_by_domain import TEST, TRAIN
from prep_assets.assets.previews.lines import line_preview
from prep_assets.assets.selftest.merged import merged_line_trials
from prep_assets.assets.stage import Asset, FromParts, Stream
from prep_assets.assets.versions import PREFERENCE as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.merging import merge_lines, parts_of
from prep_assets.assets.writing.unpaired import UNPAIRED, UNPAIRED_TEST
from prep_assets.config.models import Preference
from prep_assets.stores.lines import Lines
from prep_assets.stores.published import Draft

PARTS = "preferences_by_domain"


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the JSONL files depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Preference)
    return {
        "domains": {name: workspace.content(PARTS, name) for name in sorted(family.domains)},
        **family.model_dump(include={"seed", "shuffle"}),
    }


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the files of all domains as one each; what is trained on is shuffled."""
    family = workspace.family(Preference)
    seed = family.seed if family.shuffle else None
    parts = parts_of(workspace, PARTS, sorted(family.domains))
    lines = merge_lines(parts, payload, {TRAIN: seed, TEST: None, UNPAIRED: seed, UNPAIRED_TEST: None})
    names = {TRAIN: "train", TEST: "test", UNPAIRED: "unpaired_train", UNPAIRED_TEST: "unpaired_test"}
    kept, read = sum(lines.values()), sum(part.manifest.counts["kept"] for part in parts.values())
    return Draft({"read": read, "kept": kept, **{names[file]: count for file, count in lines.items()}, "refused": {}}, {}, ())


ASSET = Asset(
    name="preferences",
    family="preference",
    description="""Pairs of all domains as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.""",
    version=VERSION,
    depends=_depends,
    write=_write,
    upstream=(PARTS,),
    options=("seed", "shuffle"),
    checks=(INTEGRITY, ACCOUNTING, SANITY, MERGED_LINES),
    preview=line_preview,
    selftest=merged_line_trials,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST, UNPAIRED, UNPAIRED_TEST)},
    source=FromParts((PARTS,)),
    kind="json",
    columns=COLUMNS,
)
