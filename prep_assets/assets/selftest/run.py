"""Selftest: corrupts copies of the user's own rows, one mutation at a time, and sees which check notices.

The store itself is only read. Rows are taken from its beginning; each mutation is done to several of them.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from prep_assets.assets.checks.alone import alone
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.selection import stored_of
from prep_assets.assets.graph import EVERY, store_of
from prep_assets.assets.selftest.trials import ROWS, Trial, chosen, clean, tried
from prep_assets.assets.stage import FromRows, Store
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError
from prep_assets.proofs.ledger import Ledger, Refusals, Stored, places
from prep_assets.proofs.ledger_mutations import SELECTION, SHELF_MUTATIONS, Shelf
from prep_assets.proofs.selection import GOOD, Selected, select
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Published

TESTED = tuple(asset.name for asset in EVERY.values() if asset.selftest is not None)
"""Assets whose rows are corrupted: all that hold tokens or lines."""


def selftest(workspace: Workspace, published: Published) -> list[Trial]:
    """Try every mutation that fits the store.

    Raises:
        ConfigError: a store that holds neither tokens nor lines.
    """
    store = store_of(workspace, published)
    if store.asset.selftest is None:
        raise ConfigError(f"{store.asset.name} holds neither tokens nor lines; selftest is for {', '.join(TESTED)}")
    return [*store.asset.selftest(store), *shelf_trials(store)]


def shelf_trials(store: Store) -> list[Trial]:
    """Corruptions of what the store holds of the first rows of its first domain."""
    family, source = store.family, store.asset.source
    second = Second.of(store, store.domains[0]) if isinstance(source, FromRows) and store.domains else None
    shelf = _shelf(store, second) if second is not None else None
    if second is None or shelf is None or not isinstance(source, FromRows):
        return []
    again, content = alone(store, source, second), source.content(store, second)

    def check(found: Shelf) -> Verdict:
        refusals = Refusals(((f"{found.names[found.block.file]}:{row}", why) for row, why in found.refused), found.names)
        rows, held, belongs = (np.array([entry[column] for entry in found.stored]) for column in range(3))
        stored = Stored.of(places(found.block.file, rows), held.astype(bool), belongs.astype(np.int8))
        ledger = Ledger(refusals, stored, second.held_out, content, again, getattr(family, "test_fraction", 0.0))
        deque(ledger.judged([found.block]), 0)
        return ledger.verdict()

    trials = [clean("selection of the first rows", [check(shelf)])]
    for mutation in SHELF_MUTATIONS:
        corrupted = [other for at in range(len(shelf.stored)) if (other := mutation.change(shelf, at)) is not None]
        trials.append(tried(mutation.name, SELECTION, [check(corrupted[at]) for at in chosen(corrupted)]))
    return trials


def _shelf(store: Store, second: Second) -> Shelf | None:
    """The first rows of a domain that are stored, and what is stored of them."""
    family, stored = store.family, stored_of(store)
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
