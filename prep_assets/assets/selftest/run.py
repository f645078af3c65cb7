"""Selftest: corrupts copies of the user's own rows, one mutation at a time, and sees which check notices.

The store itself is only read. Rows are taken from its beginning; each mutation is done to several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from prep_assets.assets.checks.every_store import family_of
from prep_assets.assets.checks.expected import preference_conversations, preference_rows, sft_conversations, sft_rows
from prep_assets.assets.checks.expected_groups import group_conversations, group_prompts, group_rows, group_scores
from prep_assets.assets.previews.stores import streams_of
from prep_assets.assets.rl_groups import GROUPS, splits
from prep_assets.assets.selftest.lines import line_trials
from prep_assets.assets.selftest.packed import packed_trials
from prep_assets.assets.selftest.selection import shelf_trials
from prep_assets.assets.selftest.tokens import document_trials, prompt_trials
from prep_assets.assets.selftest.trials import ROWS, TRIES, Trial
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Rl
from prep_assets.errors import ConfigError
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.mask import Row, prove_masks
from prep_assets.proofs.mutations import MUTATIONS, Mutation
from prep_assets.proofs.reward_mutations import REWARD_MUTATIONS
from prep_assets.proofs.rewards import check_rewards
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore
from prep_assets.tokenization.vocabulary import Vocabulary

TESTED = (
    *("pretrain_tokens", "sft_tokens", "sft_packed", "preferences", "preference_tokens"),
    *("rl_prompts", "arithmetic_prompts", "rl_tokens", GROUPS),
)
"""Assets whose rows are corrupted: all that hold tokens or lines."""


def selftest(workspace: Workspace, published: Published) -> list[Trial]:
    """Try every mutation that fits the store.

    Raises:
        ConfigError: a store that holds neither tokens nor lines.
    """
    asset = published.manifest.asset
    if asset not in TESTED:
        raise ConfigError(f"{asset} holds neither tokens nor lines; selftest is for {', '.join(TESTED)}")
    trials = {
        "sft_packed": packed_trials,
        GROUPS: lambda *_: [trial for folder in splits(published).values() for trial in _groups(workspace, folder)],
        "pretrain_tokens": document_trials,
        "rl_tokens": prompt_trials,
        **dict.fromkeys(("preferences", "rl_prompts", "arithmetic_prompts"), line_trials),
    }.get(asset, _masked)(workspace, published)
    return [*trials, *shelf_trials(workspace, published)]


def _masked(workspace: Workspace, published: Published) -> list[Trial]:
    sources = {"sft_tokens": (sft_rows, sft_conversations), "preference_tokens": (preference_rows, preference_conversations)}
    asset, vocabulary = published.manifest.asset, workspace.vocabulary(family_of(workspace, published))
    rows_of, renders_of = sources[asset]
    trials: list[Trial] = []
    for stream in streams_of(asset, published.manifest.partition):
        if (published.directory / f"{stream}.index").is_dir():
            rows = list(islice(rows_of(workspace, published, stream), ROWS))
            renders = list(islice(renders_of(workspace, published, stream), ROWS))
            trials += _rows(rows, renders, vocabulary) if rows else []
    return trials


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


def _groups(workspace: Workspace, folder: Path) -> list[Trial]:
    """Every mutation of rows on conversations, the border between prompt and response moved, and rewards spoiled."""
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    rows, scores = list(islice(group_rows(workspace, folder), ROWS)), list(islice(group_scores(workspace, folder), ROWS))
    renders, prompts = (list(islice(found(workspace, folder), ROWS)) for found in (group_conversations, group_prompts))
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
