"""Domains beside each other: where those of a family are too small to be cut into shards, each is built and checked by one worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prep_assets.assets.graph import EVERY, holds, upstream_of
from prep_assets.assets.reading.stretches import text_bytes
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import FEWEST, opened
from prep_assets.config.models import FAMILIES
from prep_assets.engine.events import Event, Refused, Skipped
from prep_assets.engine.planning import Step
from prep_assets.errors import PrepAssetsError
from prep_assets.records.cuts import SHARD_BYTES
from prep_assets.stores.mirror import bucket_of
from prep_assets.stores.tokens import TokenStore
from prep_assets.workers.pool import WorkerLost
from prep_assets.workers.process import portable
from prep_assets.workers.shards import Counts, Plan, Shard

LARGE = FEWEST * SHARD_BYTES
"""Bytes of text. A domain that has as many is cut into shards; fewer in all of them are done sooner than workers start."""
CarryOut = Callable[[Workspace, Sequence[Step]], Iterator[Event]]
"""Carries out steps in this process. It travels, as the work of shards does."""
PINNED = 8
"""How many times sooner the rows of a domain are pinned than all the rest is done."""
Chains = Mapping[tuple[Step, ...], int]
"""The steps of each domain, in order, and its bytes of text."""


def chains_of(workspace: Workspace, steps: Iterable[Step]) -> dict[str, Chains]:
    """By family, what workers carry out, each of them all steps of a domain; nothing where it is done sooner here, one step after the other.

    Args:
        steps: those with something to do.
    """
    todo = {(step.asset.name, step.partition): step for step in steps}
    domains = defaultdict[tuple[str, str], list[Step]](list)
    # what a bucket holds lies in a folder of each process; options of one run are not those of the stores that feed what was asked for
    if workspace.pool is not None and bucket_of(workspace.stores) is None and not workspace.overrides:
        for step in todo.values():
            if step.partition and EVERY.get(step.asset.name) is step.asset:
                domains[step.asset.family, step.partition].append(step)
    found = defaultdict[str, dict[tuple[Step, ...], int]](dict)
    for (family, name), chain in domains.items():
        own = {step.asset.name for step in chain}
        inputs = {(above.name, each) for step in chain for above, each in upstream_of(workspace, step.asset, step.partition)}
        size = _text_bytes(workspace, family, name)
        if size < LARGE and all(above in own for above, each in inputs & todo.keys()):
            found[family][tuple(chain)] = size
    return {
        family: chains
        for family, chains in found.items()
        if len(chains) > 1
        and sum(size // (PINNED if all(step.asset.stage == "raw" for step in chain) else 1) for chain, size in chains.items()) >= LARGE
        and workspace.runner(workspace.family(FAMILIES[family])) is workspace.pool
        and _travelling(workspace, family, chains) is not None
    }


def _tokenized(chains: Chains) -> bool:
    return any(holds(step.asset.name, TokenStore) for chain in chains for step in chain)


def _travelling(workspace: Workspace, family: str, chains: Chains) -> Workspace | None:
    """The workspace as it goes to workers; `None` where something of it cannot be opened, as each store that needs it says."""
    with suppress(PrepAssetsError):
        return workspace.travelling(FAMILIES[family], tokenized=_tokenized(chains))
    return None


def _text_bytes(workspace: Workspace, family: str, name: str) -> int:
    """Bytes of text of a domain, about; what cannot be told is large."""
    with suppress(PrepAssetsError, OSError):
        domain = workspace.family(FAMILIES[family]).domains[name]
        return sum(map(text_bytes, (*workspace.files(domain, fetch=False), *workspace.test_files(domain, fetch=False))))
    return LARGE


def carried_out(workspace: Workspace, family: str, chains: Chains, carry_out: CarryOut) -> Iterator[Event]:
    """What happens when workers carry out the steps of some domains of a family: all of one domain, then all of the next."""
    kind, listed, total = FAMILIES[family], list(chains), sum(chains.values())
    travelling, runner = _travelling(workspace, family, chains), workspace.runner(workspace.family(kind))
    assert travelling is not None and runner is not None
    work = partial(_chain, workspace=travelling, carry_out=carry_out)
    ready = partial(opened, travelling, kind) if _tokenized(chains) else None
    left = [
        Shard(number, chain[0].partition, size, tuple(replace(step, standing=None) for step in chain))
        for number, (chain, size) in enumerate(chains.items())
    ]
    while left:
        try:
            with closing(runner.run_shards(Plan(tuple(left), None, whole=len(listed), ready=ready), work)) as results:
                for result in results:
                    left.pop(0)
                    yield from result.counts["events"]
                    if workspace.progress:
                        done = total - sum(shard.size for shard in left)
                        workspace.progress(f"{len(listed) - len(left):,} of {len(listed):,} domains", done, total)
        except WorkerLost as error:
            first, *rest = listed[left.pop(0).number]
            yield Refused(first, f"{first.label}: {error}", {}, error=error)
            yield from (Skipped(step, first) for step in rest)


def _chain(task: Sequence[Step], folder: Path, *, workspace: Workspace, carry_out: CarryOut) -> Counts:
    """The work of one domain."""
    return {"events": [_portable(event) for event in carry_out(workspace, task)]}


def _portable(event: Any) -> Any:
    error = getattr(event, "error", None)
    return event if error is None else replace(event, error=portable(error))
