"""Checks of preference pairs and of their tokens."""

from __future__ import annotations

from prep_assets.assets.stage import Check, Store
from prep_assets.proofs.pairs import check_pairs
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.lines import open_lines


def pairs(store: Store) -> Verdict:
    """Pairs, and labelled answers where there are any."""
    files = ("preferences", "preferences_test", "unpaired", "unpaired_test")
    return check_pairs(*(open_lines(store.directory, name) if (store.directory / f"{name}.jsonl").is_file() else () for name in files))


SANITY = Check("pair_sanity", "One prompt, two different answers, nothing empty, no prompt in both train and test.", pairs)
