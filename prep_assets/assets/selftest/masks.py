"""Selftest of token rows with a mask: conversations, both sides of pairs, scored groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from prep_assets.assets.checks.expected_groups import group_conversations, group_prompts, group_rows, group_samples, group_scores
from prep_assets.assets.selftest.trials import ROWS, TRIES, Trial
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.groups import splits
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.mask import Row, prove_masks
from prep_assets.proofs.mutations import MUTATIONS, Mutation
from prep_assets.proofs.reward_mutations import REWARD_MUTATIONS
from prep_assets.proofs.rewards import check_rewards
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.sampled import check_sampled
from prep_assets.proofs.sampled_mutations import ROLLOUT_MUTATIONS
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.tokens import TokenStore
from prep_assets.tokenization.vocabulary import Vocabulary


def masked_trials(
    rows_of: Callable[[Store, str], Iterator[Row]], renders_of: Callable[[Store, str], Iterator[Conversation]]
) -> Callable[[Store], list[Trial]]:
    """Corruptions of every stream of a store, given what its rows and their fresh renders are."""

    def trials(store: Store) -> list[Trial]:
        found: list[Trial] = []
        for name in store.streams():
            rows, renders = list(islice(rows_of(store, name), ROWS)), list(islice(renders_of(store, name), ROWS))
            found += _rows(rows, renders, store.vocabulary) if rows else []
        return found

    return trials


def group_trials(store: Store) -> list[Trial]:
    """Corruptions of scored groups."""
    return [trial for folder in splits(store.directory).values() for trial in (*_groups(store, folder), *_rollouts(store, folder))]


def _rows(rows: list[Row], renders: list[Conversation], vocabulary: Vocabulary) -> list[Trial]:
    checks: dict[str, Callable[[Sequence[Row]], tuple[bool, str]]] = {
        "mask_alignment": lambda found: _said(prove_masks(found, vocabulary)),
        "row_integrity": lambda found: _said(check_records(_store(found), vocabulary_size=vocabulary.size)),
        "tokenization_identity": lambda found: _said(
            prove_identity((replace(render, ids=row.ids) for render, row in zip(renders, found, strict=True)), vocabulary)
        ),
    }
    clean = [check(rows) for check in checks.values()]
    trials = [
        Trial("", "every check", len(clean), sum(passed for passed, _ in clean), "; ".join(text for passed, text in clean if not passed))
    ]
    return [*trials, *(_try(mutation, rows, checks[mutation.caught_by], vocabulary) for mutation in MUTATIONS)]


def _groups(store: Store, folder: Path) -> list[Trial]:
    """Every mutation of rows on conversations, the border between prompt and response moved, and rewards spoiled."""
    vocabulary = store.vocabulary
    rows, scores = list(islice(group_rows(store, folder), ROWS)), list(islice(group_scores(store, folder), ROWS))
    renders, prompts = (list(islice(found(store, folder), ROWS)) for found in (group_conversations, group_prompts))
    if not rows:
        return []
    chosen = range(0, len(prompts), max(1, len(prompts) // TRIES))
    clean = [_said(prove_identity(prompts, vocabulary)), _said(check_rewards(scores))]
    moved = [_said(prove_identity([replace(prompts[at], ids=prompts[at].ids[:-1])], vocabulary)) for at in chosen]
    trials = [
        Trial("", "every check of groups", len(clean), sum(passed for passed, _ in clean), "; ".join(text for ok, text in clean if not ok)),
        _trial("border of prompt and response moved", "tokenization_identity", moved),
    ]
    for mutation in REWARD_MUTATIONS:
        changed = [other for at in chosen if (other := mutation.change(scores[at])) is not None]
        trials.append(_trial(mutation.name, "rewards", [_said(check_rewards([other])) for other in changed]))
    return [*_rows(rows, renders, vocabulary), *trials]


def _rollouts(store: Store, folder: Path) -> list[Trial]:
    """Sampled ids spoiled, where the source has them."""
    groups = list(islice(group_samples(store, folder), TRIES))
    if not groups:
        return []
    clean = check_sampled(groups)
    trials = [Trial("", "sampled_ids", 1, int(clean.passed), "" if clean.passed else clean.summary)]
    for mutation in ROLLOUT_MUTATIONS:
        changed = [other for group in groups if (other := mutation.change(group)) is not None]
        trials.append(_trial(mutation.name, "sampled_ids", [_said(check_sampled([other])) for other in changed]))
    return trials


def _trial(name: str, check: str, said: Sequence[tuple[bool, str]]) -> Trial:
    return Trial(name, check, len(said), sum(not passed for passed, _ in said), said[0][1] if said else "")


def _try(mutation: Mutation, rows: list[Row], check: Callable[[Sequence[Row]], tuple[bool, str]], vocabulary: Vocabulary) -> Trial:
    tried = caught = 0
    shown = ""
    for at in range(0, len(rows), max(1, len(rows) // TRIES)):
        changed = mutation.change(rows, at, vocabulary)
        if changed is None:
            continue
        passed, text = check(changed)
        tried += 1
        caught += not passed
        shown = shown or text
    return Trial(mutation.name, mutation.caught_by, tried, caught, shown)


def _said(verdict: Verdict) -> tuple[bool, str]:
    return verdict.passed, verdict.summary


def _store(rows: Sequence[Row]) -> TokenStore:
    ends = np.cumsum([len(row.ids) for row in rows])
    arrays = {"tokens": np.concatenate([row.ids for row in rows]), "loss_mask": np.concatenate([row.mask for row in rows])}
    return TokenStore(arrays, ends, np.zeros(len(rows), np.int32), np.arange(len(rows)))
