"""Selftest of JSONL stores: corruptions of pairs, prompts and golds; and of merged stores: lines and records lost, doubled, exchanged, altered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import islice

import numpy as np

from prep_assets.assets.checks.merged import MergedStream, merged_files, merged_streams
from prep_assets.assets.checks.source_match import LinesMatch, matched_questions
from prep_assets.assets.selftest.trials import ROWS, Trial, clean, trials_of
from prep_assets.assets.stage import Store
from prep_assets.proofs.contrasts import check_contrasts
from prep_assets.proofs.gold import check_golds
from prep_assets.proofs.line_mutations import PROMPT_MUTATIONS
from prep_assets.proofs.lines_match import Line, check_lines
from prep_assets.proofs.merged import Shelf, check_merged_lines
from prep_assets.proofs.merged_mutations import LINE_MUTATIONS, NAME, RECORD_MUTATIONS, Records
from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.pairs import check_pairs
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.tokens import TokenStore


def line_trials(kind: type[LinesMatch], other: str, mutations: Sequence[Mutation], store: Store) -> list[Trial]:
    """Corruptions of lines that `source_match` or the `other` check must notice."""
    return _trials(kind(store).first_lines(ROWS), other, mutations)


def question_trials(store: Store) -> list[Trial]:
    """Corruptions of generated questions."""
    return _trials(list(islice(matched_questions(store), ROWS)), "gold_answers", PROMPT_MUTATIONS)


def _trials(lines: list[Line], other: str, mutations: Sequence[Mutation]) -> list[Trial]:
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
    return trials_of(lines, len(lines), mutations, {name: checks[name] for name in ("source_match", other)})


def _gold(line: Line) -> Fraction | None:
    """The gold that the row of a line gives."""
    gold = (line.made or {}).get("gold")
    return Fraction(repr(gold)) if isinstance(gold, float) else None


def merged_line_trials(store: Store) -> list[Trial]:
    """Corruptions of merged lines."""
    trials: list[Trial] = []
    for each in merged_files(store):
        merged, parts = (Shelf(shelf.origin, list(shelf.lines)) for shelf in (each.merged, each.parts))
        check = partial(_merged_lines, name=each.name, parts=parts, seed=each.seed)
        trials += trials_of(merged, len(merged.origin), LINE_MUTATIONS, {NAME: check}, what=f"{NAME} ({each.name})")
    return trials


def _merged_lines(merged: Shelf, *, name: str, parts: Shelf, seed: int | None) -> Verdict:
    return check_merged_lines(name, merged, parts, seed)


def merged_record_trials(store: Store) -> list[Trial]:
    """Corruptions of merged tokens."""
    trials: list[Trial] = []
    for each in merged_streams(store):
        if not len(each.store):
            continue
        trials.append(clean(f"{NAME} ({each.name})", [each.verdict()]))
        arrays = {key: np.array(array[:]) for key, array in each.store.arrays.items()}
        whole = Records(arrays, each.store.ends, each.store.file, each.store.row)
        trials += trials_of(whole, len(each.store), RECORD_MUTATIONS, {NAME: partial(_merged_records, each=each)})[1:]
    return trials


def _merged_records(found: Records, *, each: MergedStream) -> Verdict:
    return replace(each, store=TokenStore(found.arrays, found.ends, found.file, found.row), source=None).verdict()
