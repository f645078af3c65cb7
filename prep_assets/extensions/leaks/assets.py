"""Held-out data sets, such as benchmarks, and what is held out elsewhere: pinned, cut into passages, and searched for in every domain that is trained on.

A workspace has these assets where it has an `eval.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.extensions.leaks.checks import LEAKS_AGAIN, NO_LEAKS, PASSAGES_AGAIN
from prep_assets.extensions.leaks.search import (
    drops,
    families_that_hold_out,
    leaks_recipe,
    passages_recipe,
    tried,
    write_leaks,
    write_passages,
)
from prep_assets.graph.raw import raw_asset
from prep_assets.pipeline.asset import LEAK_COLUMNS, Asset
from prep_assets.pipeline.workspace import Workspace

__all__ = ["AFTER", "ASSETS", "drops", "tried", "verdict_asset"]

AFTER = ("quality",)
"""Verdicts of whose rows those that are dropped are not searched."""

EVAL_RAW = raw_asset(
    "eval",
    """Files of held-out data sets, pinned by content hash.

Nothing is copied, and nothing is made of them but passages to search for.""",
)


EVAL_PASSAGES = Asset(
    name="eval_passages",
    family="eval",
    description="""Passages of everything that is held out, as hashes: of the data sets of eval.yaml, and of the test shares of all families.

`*_leaks` search every domain for them.""",
    write=write_passages,
    promises=("every held-out example was read",),
    inputs=(("", EVAL_RAW),),
    depends=passages_recipe,
    reads=lambda workspace: [f"{family}_raw" for family in families_that_hold_out(workspace)],
    options=("rules", "splits"),
    checks=(INTEGRITY, PASSAGES_AGAIN),
    kind="parquet",
)


ASSETS = (EVAL_RAW, EVAL_PASSAGES)


def _nothing_held_out(workspace: Workspace) -> str:
    return "" if workspace.has("eval") else "there is no eval.yaml that says what is held out"


def verdict_asset(raw: Asset, before: Mapping[str, Asset], further: Sequence[str]) -> Asset:
    """The asset that searches the examples of a family for what is held out, but for those that others before it drop."""
    return Asset(
        name=f"{raw.family}_leaks",
        family=raw.family,
        description="""Examples of a domain that hold a held-out text, as `verdicts.parquet`: which, of which data set, and how much of it.

What is made of the domain waits until none is left, or refuses them, or does not mind: `policy` in eval.yaml.""",
        write=write_leaks,
        promises=("every example was searched for every held-out text",),
        inputs=(("raw", raw), *before.items(), ("passages", EVAL_PASSAGES)),
        depends=partial(leaks_recipe, raw.family),
        partitioned=True,
        checks=(INTEGRITY, NO_LEAKS, LEAKS_AGAIN),
        absent=_nothing_held_out,
        feeds=drops,
        stage="leaks",
        kind="parquet",
        columns=LEAK_COLUMNS,
    )
