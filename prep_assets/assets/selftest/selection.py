"""Selftest of what a store holds of its sources: rows lost, refused or kept for nothing, on the wrong side of the split."""

from __future__ import annotations

import numpy as np

from prep_assets.assets.checks.alone import alone
from prep_assets.assets.checks.every_store import family_of
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.selection import SOURCED, content_of, domain_names, stored_of
from prep_assets.assets.selftest.trials import ROWS, Trial, chosen, clean, tried
from prep_assets.assets.workspace import Workspace
from prep_assets.proofs.ledger import Ledger, Refusals, Stored, places
from prep_assets.proofs.ledger_mutations import SELECTION, SHELF_MUTATIONS, Shelf
from prep_assets.proofs.selection import GOOD, Selected, select
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Published


def shelf_trials(workspace: Workspace, published: Published) -> list[Trial]:
    """Corruptions of what the store holds of the first rows of its first domain."""
    if published.manifest.asset not in SOURCED:
        return []
    family = family_of(workspace, published)
    names = domain_names(family, published)
    second = Second.of(workspace, type(family), published.manifest.asset, names[0]) if names else None
    shelf = _shelf(workspace, published, second) if second is not None else None
    if second is None or shelf is None:
        return []
    again, content = alone(workspace, type(family), published, second), content_of(family, published.manifest.asset, second)

    def check(found: Shelf) -> Verdict:
        ledger = Ledger(
            Refusals((f"{found.names[found.block.file]}:{row}", why) for row, why in found.refused), getattr(family, "test_fraction", 0.0)
        )
        rows, held, belongs = (np.array([entry[column] for entry in found.stored]) for column in range(3))
        stored = Stored.of(places(found.block.file, rows), held.astype(bool), belongs.astype(np.int8))
        ledger.domain([found.block], stored, found.names, second.held_out, content, again)
        return ledger.verdict()

    trials = [clean("selection of the first rows", [check(shelf)])]
    for mutation in SHELF_MUTATIONS:
        corrupted = [other for at in range(len(shelf.stored)) if (other := mutation.change(shelf, at)) is not None]
        trials.append(tried(mutation.name, SELECTION, [check(corrupted[at]) for at in chosen(corrupted)]))
    return trials


def _shelf(workspace: Workspace, published: Published, second: Second) -> Shelf | None:
    """The first rows of a domain that are stored, and what is stored of them."""
    family = family_of(workspace, published)
    stored = stored_of(family, published, 0)
    rules = second.rules(deduplicate=family.preprocessing.deduplicate, limit=getattr(family, "max_per_source", None))
    block = next(select(second.rows(), rules), None)
    if block is None:
        return None
    where = {place: at for at, place in enumerate(stored.place.tolist())}
    kept = [
        (row, where[int(places(block.file, row))], payload)
        for row, fate, payload in zip(block.rows, block.fates, block.payloads, strict=True)
        if fate == GOOD and int(places(block.file, row)) in where
    ][:ROWS]
    records = tuple((row, bool(stored.held_out[at]), int(stored.belongs[at])) for row, at, _ in kept)
    rows = Selected(block.file, [row for row, *_ in kept], [GOOD] * len(kept), [payload for *_, payload in kept])
    return Shelf(second.names, rows, records, ()) if kept else None
