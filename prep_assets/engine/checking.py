"""The checks of a store: one after the other, or by several processes at once where the store is large. Those that look at every row are then carried out
in parts of the store, by whichever process is free, and what is found of the parts is put together in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from prep_assets.assets.checks.parts import Part, Unsound, parts_of
from prep_assets.assets.checks.verification import joined, part_of
from prep_assets.assets.graph import EVERY, holds, run_check, store_of
from prep_assets.assets.stage import Asset, Check, Store
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import opened
from prep_assets.config.models import FAMILIES
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.reference_ids import keep_words
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore
from prep_assets.workers.shards import Plan, Runner, Shard, ShardResult

LARGE = 16 << 20
"""Bytes of payload. The checks of a smaller store are done sooner than workers start."""


def verdicts(workspace: Workspace, asset: Asset, published: Published, checks: Sequence[Check]) -> Iterator[tuple[str, Verdict]]:
    """What each of some checks of an asset says, in order."""
    runner, fresh = workspace.runner(workspace.family(FAMILIES[asset.family])), _asked(published, [check.name for check in checks])
    if runner is None or len(checks) < 2 or _size(published) < LARGE or EVERY.get(asset.name) is not asset:
        for check in checks:
            yield check.name, verdict_of(check, workspace, fresh)
        return
    said: dict[str, Verdict] = {}
    waiting = [check.name for check in reversed(checks)]
    for found in _by_workers(runner, workspace, asset, fresh, checks):
        said |= found
        while waiting and waiting[-1] in said:
            yield waiting[-1], said[waiting.pop()]


def _by_workers(
    runner: Runner, workspace: Workspace, asset: Asset, published: Published, checks: Sequence[Check]
) -> Iterator[Mapping[str, Verdict]]:
    """The verdicts of some checks, as they come."""
    travelling = workspace.travelling(FAMILIES[asset.family])
    work = partial(_carried_out, workspace=travelling, asset=asset.name, published=published, kept={})
    # as builds open it, whose workers go on with this
    ready = partial(opened, travelling, FAMILIES[asset.family]) if holds(asset.name, TokenStore) else None
    store, parts = store_of(workspace, published), list[Shard]()
    derived = [check for check in asset.checks if check.derived]
    with suppress(PrepAssetsError, OSError):  # what is wrong with the sources the checks say
        parts = parts_of(store) if asset.in_parts and {*derived} <= {*checks} else []
    parts = parts if len(parts) > 1 else []
    whole = _whole(published, [check for check in checks if not parts or not check.derived])
    with closing(runner.run_shards(_plan(published, (*whole, *parts), ready), work)) as results:
        for result in islice(results, len(whole)):
            yield result.counts["verdicts"]
        if not parts:
            next(results, None)  # lets it end by itself
            return
        with suppress(Unsound):
            yield joined(store, map(_found, results))
            return
    # the checks of the whole store say what is wrong
    for result in runner.run_shards(_plan(published, _whole(published, derived), ready), work):
        yield result.counts["verdicts"]


def _whole(published: Published, checks: Sequence[Check]) -> list[Shard]:
    """Checks of the whole store, together where they come of one reading of its sources."""
    tasks = [[check.name for check in group] for _, group in groupby(checks, lambda check: check.derived or check.name)]
    return [Shard(0, " and ".join(task), _size(published), task) for task in tasks]


def _plan(published: Published, shards: Sequence[Shard], ready: Callable[[], object] | None) -> Plan:
    label = published.manifest.label
    return Plan([replace(shard, number=number, what=f"{label} {shard.what}") for number, shard in enumerate(shards)], None, ready=ready)


def _carried_out(
    task: Part | Sequence[str], folder: Path, *, workspace: Workspace, asset: str, published: Published, kept: dict[str, Any]
) -> dict[str, Any]:
    """The work of one shard: what is found of a part of a store, or the verdicts of some checks of all of it.

    Args:
        kept: see `Store.kept`.
    """
    if published.keeper is not None:  # the folder that it is fetched to is another one here
        published = workspace.place(asset, published.manifest.partition).shelf.published(published.version)
    made = EVERY[asset]
    if not isinstance(task, Part):
        published = _asked(published, task)
        return {"verdicts": {check.name: verdict_of(check, workspace, published) for check in made.checks if check.name in task}}
    try:
        return {"found": part_of(Store(workspace, made, published, task, kept))}
    except Exception:  # whatever a damaged store makes a reader raise
        return {"found": None}
    finally:
        keep_words()


def _found(result: ShardResult) -> Any:
    """What was found of a part.

    Raises:
        Unsound: it is not as it must be.
    """
    if (found := result.counts["found"]) is None:
        raise Unsound
    return found


def _asked(published: Published, names: Collection[str]) -> Published:
    return replace(published, evidence=dict.fromkeys(names))


def _size(published: Published) -> int:
    return sum(entry["bytes"] for entry in published.manifest.files.values())


def verdict_of(check: Check, workspace: Workspace, published: Published) -> Verdict:
    """The verdict of a check. One that cannot be carried out does not hold, whatever a damaged store makes a reader raise."""
    try:
        return run_check(check, workspace, published)
    except Exception as error:
        fault = f"the check could not be carried out ({type(error).__name__}: {error})"
        return Verdict(False, fault, {}, Worst(published.where, fault))
    finally:
        keep_words()
