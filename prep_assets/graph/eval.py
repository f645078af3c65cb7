"""Held-out data sets, such as benchmarks, and what is held out elsewhere: pinned, cut into passages, and searched for in every domain that is trained on.

A workspace has these assets where it has an `eval.yaml`.
"""

from __future__ import annotations

from prep_assets.checks.of_quality import PASSAGES_AGAIN
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.graph.raw import raw_asset
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.leaks import families_that_hold_out, passages_recipe, write_passages

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
