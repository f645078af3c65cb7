"""Selftest: corrupts copies of the user's own rows, one mutation at a time, and sees which check notices.

The store itself is only read. Rows are taken from its beginning; each mutation is done to several of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from prep_assets.assets.checks.selection import Selection
from prep_assets.assets.graph import EVERY, store_of
from prep_assets.assets.selftest.trials import ROWS, Trial, chosen, clean, tried
from prep_assets.assets.stage import FromRows, Store
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError
from prep_assets.proofs.ledger import COUNTED, Refusals, Stored, places
from prep_assets.proofs.ledger_mutations import SHELF_MUTATIONS, Shelf
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
    """Corruptions of what the store holds of the first rows of its domain."""
    if not isinstance(store.asset.source, FromRows) or (shelf := _shelf(selection := Selection(store))) is None:
        return []

    def check(found: Shelf) -> Verdict:
        refusals = Refusals(((f"{found.names[found.block.file]}:{row}", why) for row, why in found.refused), found.names)
        rows, held, belongs = (np.array([entry[column] for entry in found.stored]) for column in range(3))
        stored = Stored.of(places(found.block.file, rows), held.astype(bool), belongs.astype(np.int8))
        ledger = replace(selection.ledger, refusals=refusals, stored=stored, seen=None, numbers=dict.fromkeys(COUNTED, 0))
        deque(ledger.judged([found.block]), 0)
        return ledger.verdict()

    trials = [clean("selection of the first rows", [check(shelf)])]
    for mutation in SHELF_MUTATIONS:
        corrupted = [other for at in range(len(shelf.stored)) if (other := mutation.change(shelf, at)) is not None]
        trials.append(tried(mutation.name, mutation.caught_by, [check(corrupted[at]) for at in chosen(len(corrupted))]))
    return trials


def _shelf(selection: Selection) -> Shelf | None:
    """The first rows of a domain that are stored, and what is stored of them."""
    stored, block = selection.ledger.stored, next(select(selection.second.rows(), selection.rules), None)
    if block is None:
        return None
    record = {place: at for at, place in enumerate(stored.place.tolist())}
    place = places(block.file, block.rows).tolist()
    kept = [at for at, fate in enumerate(block.fates) if fate == GOOD and place[at] in record][:ROWS]
    rows, records = [block.rows[at] for at in kept], [record[place[at]] for at in kept]
    entries = tuple((row, bool(stored.held_out[at]), int(stored.belongs[at])) for row, at in zip(rows, records, strict=True))
    some = Selected(block.file, rows, [GOOD] * len(kept), [block.payloads[at] for at in kept])
    return Shelf(selection.second.names, some, entries, ()) if kept else None
