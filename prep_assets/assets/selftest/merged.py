"""Selftest of merged stores: their lines and records lost, doubled, exchanged and altered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prep_assets.assets.checks.merged import merged_files, merged_streams
from prep_assets.assets.selftest.trials import Trial, chosen, clean, tried
from prep_assets.assets.stage import Store
from prep_assets.proofs.merged import Shelf, check_merged_lines
from prep_assets.proofs.merged_mutations import LINE_MUTATIONS, RECORD_MUTATIONS, Records
from prep_assets.stores.tokens import TokenStore

NAME = "merged"


def merged_line_trials(store: Store) -> list[Trial]:
    """Corruptions of merged lines."""
    trials: list[Trial] = []
    for each in merged_files(store):
        merged, parts = (Shelf(shelf.origin, list(shelf.lines)) for shelf in (each.merged, each.parts))
        if not len(merged.origin):
            continue
        trials.append(clean(f"{NAME} ({each.name})", [check_merged_lines(each.name, merged, parts, each.seed)]))
        for mutation in LINE_MUTATIONS:
            changed = [other for at in chosen(range(len(merged.origin))) if (other := mutation.change(merged, at)) is not None]
            trials.append(tried(mutation.name, NAME, [check_merged_lines(each.name, other, parts, each.seed) for other in changed]))
    return trials


def merged_record_trials(store: Store) -> list[Trial]:
    """Corruptions of merged tokens."""
    trials: list[Trial] = []
    for each in merged_streams(store):
        if not len(each.store):
            continue
        whole = Records(
            {key: np.array(array[:]) for key, array in each.store.arrays.items()}, each.store.ends, each.store.file, each.store.row
        )
        trials.append(clean(f"{NAME} ({each.name})", [each.verdict()]))
        for mutation in RECORD_MUTATIONS:
            changed = [other for at in chosen(range(len(each.store))) if (other := mutation.change(whole, at)) is not None]
            stores = [TokenStore(other.arrays, other.ends, other.file, other.row) for other in changed]
            trials.append(tried(mutation.name, NAME, [replace(each, store=spoilt, source=None).verdict() for spoilt in stores]))
    return trials
