"""Selftest of JSONL stores: corruptions of pairs, prompts and golds; and of merged stores: lines and records lost, doubled, exchanged, altered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np

from prep_assets.assets.checks.merged import merged_files, merged_streams
from prep_assets.assets.checks.source_match import ContrastsMatch, PairsMatch, PromptsMatch, matched_questions
from prep_assets.assets.selftest.trials import ROWS, Trial, chosen, clean, tried
from prep_assets.assets.stage import Store
from prep_assets.proofs.contrasts import check_contrasts
from prep_assets.proofs.gold import check_golds
from prep_assets.proofs.line_mutations import CONTRAST_MUTATIONS, PAIR_MUTATIONS, PROMPT_MUTATIONS, LineMutation
from prep_assets.proofs.lines_match import Line, check_lines
from prep_assets.proofs.merged import Shelf, check_merged_lines
from prep_assets.proofs.merged_mutations import LINE_MUTATIONS, RECORD_MUTATIONS, Records
from prep_assets.proofs.pairs import check_pairs
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.tokens import TokenStore

NAME = "merged"


def pair_trials(store: Store) -> list[Trial]:
    """Corruptions of pairs."""
    return _trials(PairsMatch(store).first_lines(ROWS), "pair_sanity", PAIR_MUTATIONS)


def prompt_trials(store: Store) -> list[Trial]:
    """Corruptions of prompts."""
    return _trials(PromptsMatch(store).first_lines(ROWS), "gold_answers", PROMPT_MUTATIONS)


def question_trials(store: Store) -> list[Trial]:
    """Corruptions of generated questions."""
    return _trials(list(islice(matched_questions(store), ROWS)), "gold_answers", PROMPT_MUTATIONS)


def contrast_trials(store: Store) -> list[Trial]:
    """Corruptions of contrastive rows."""
    return _trials(ContrastsMatch(store).first_lines(ROWS), "contrast_sanity", CONTRAST_MUTATIONS)


def _trials(lines: list[Line], other: str, mutations: Sequence[LineMutation]) -> list[Trial]:
    """Corruptions that `source_match` or the `other` check must notice."""
    if not lines:
        return []
    golds = [_gold(line) for line in lines]
    checks: dict[str, Callable[[Sequence[Line]], Verdict]] = {
        "source_match": lambda found: check_lines(found, stored=len(found)),
        "pair_sanity": lambda found: check_pairs(
            [line.stored for line in found if "label" not in line.stored], [], [line.stored for line in found if "label" in line.stored]
        ),
        "contrast_sanity": lambda found: check_contrasts([line.stored for line in found], []),
        "gold_answers": lambda found: check_golds(
            (line.id, "", line.stored.get("gold"), gold) for line, gold in zip(found, golds, strict=True) if "verifier" not in line.stored
        ),
    }
    used = [checks["source_match"], checks[other]]
    trials = [clean("every check", [check(lines) for check in used])]
    for mutation in mutations:
        corrupted = [changed for at in chosen(lines) if (changed := mutation.change(lines, at)) is not None]
        trials.append(tried(mutation.name, mutation.caught_by, [checks[mutation.caught_by](changed) for changed in corrupted]))
    return trials


def _gold(line: Line) -> Fraction | None:
    """The gold that the row of a line gives."""
    gold = (line.made or {}).get("gold")
    return Fraction(repr(gold)) if isinstance(gold, float) else None


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
