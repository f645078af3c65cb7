"""The checks of a store, one after the other, or by several processes at once where the store is large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from prep_assets.assets.graph import EVERY, run_check
from prep_assets.assets.stage import ASKED, Asset, Check
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.proofs.reference_ids import keep_words
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.published import Published
from prep_assets.workers.shards import Plan, Shard

LARGE = 16 << 20
"""Bytes of payload. The checks of a smaller store are done sooner than workers start."""


def verdicts(workspace: Workspace, asset: Asset, published: Published, checks: Sequence[Check]) -> Iterator[tuple[str, Verdict]]:
    """What each of some checks of an asset says, in order."""
    runner, fresh = workspace.runner(workspace.family(FAMILIES[asset.family])), _asked(published, [check.name for check in checks])
    size = sum(entry["bytes"] for entry in published.manifest.files.values())
    if runner is None or len(checks) < 2 or size < LARGE or EVERY.get(asset.name) is not asset:
        for check in checks:
            yield check.name, verdict_of(check, workspace, fresh)
        return
    label = workspace.place(asset.name, published.manifest.partition).label
    groups = groupby(checks, key=lambda check: check.shares or check.name)
    tasks = [[check.name for check in group] for _, group in groups]
    shards = [Shard(number, f"{label} {' and '.join(task)}", size, task) for number, task in enumerate(tasks)]
    work = partial(_check, workspace=workspace.travelling(FAMILIES[asset.family]), asset=asset.name, published=fresh)
    for result in runner.run_shards(Plan(shards, None), work):
        yield from result.counts["verdicts"].items()


def _check(names: Sequence[str], folder: Path, *, workspace: Workspace, asset: str, published: Published) -> dict[str, Any]:
    if published.keeper is not None:  # the folder that it is fetched to is another one here
        published = workspace.place(asset, published.manifest.partition).shelf.published(published.version)
    published = _asked(published, names)
    listed = [check for check in EVERY[asset].checks if check.name in names]
    return {"verdicts": {check.name: verdict_of(check, workspace, published) for check in listed}}


def _asked(published: Published, names: Sequence[str]) -> Published:
    return replace(published, evidence={ASKED: names})


def verdict_of(check: Check, workspace: Workspace, published: Published) -> Verdict:
    """The verdict of a check. One that cannot be carried out does not hold, whatever a damaged store makes a reader raise."""
    try:
        return run_check(check, workspace, published)
    except Exception as error:
        fault = f"the check could not be carried out ({type(error).__name__}: {error})"
        return Verdict(False, fault, {}, Worst(published.where, fault))
    finally:
        keep_words()
