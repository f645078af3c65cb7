"""Selftest of token rows with a mask: conversations, both sides of pairs, scored groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from prep_assets.assets.checks.expected import sft_conversations, sft_examples, sft_reading, sft_rows
from prep_assets.assets.checks.expected_groups import group_conversations, group_prompts, group_rows, group_samples, group_scores
from prep_assets.assets.selftest.trials import ROWS, TRIES, Trial
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.groups import splits
from prep_assets.config.models import Sft
from prep_assets.errors import CheckFailed
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.mask import Row, prove_masks
from prep_assets.proofs.mutations import ATTENTION_MUTATIONS, MUTATIONS, Mutation
from prep_assets.proofs.reward_mutations import REWARD_MUTATIONS
from prep_assets.proofs.rewards import check_rewards
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.sampled import check_sampled
from prep_assets.proofs.sampled_mutations import ROLLOUT_MUTATIONS
from prep_assets.proofs.stretches import MaskOptions
from prep_assets.proofs.trained_texts import derive
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat, Sample
from prep_assets.stores.tokens import ATTENTION, TokenStore, unsigned
from prep_assets.templates.chat_template import ChatTemplate, marks_generated
from prep_assets.tokenization.vocabulary import Vocabulary

_TAGS = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


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


def sft_trials(store: Store) -> list[Trial]:
    """Corruptions of conversations, and of the tags of their template where it has any."""
    template = store.workspace.template(store.workspace.family(Sft))
    marked, read, trials = template.training or template.source, sft_reading(store), masked_trials(sft_rows, sft_conversations)(store)
    if not marks_generated(marked):
        return trials
    options = MaskOptions(**{key: store.recipe[key] for key in MaskOptions.__dataclass_fields__})
    spoiled = replace(template, training=everything_marked(marked))
    for stream in store.streams().values():
        examples = (example for *_, example in islice(sft_examples(store, stream), TRIES))
        samples = [read(example) if isinstance(example, PlainChat) else example for example in examples]
        tagged = [sample for sample in samples if sample.tokenized is None and derive(sample, options, template).tagged]
        verdicts = [_outcome(_by_tags(sample, options, spoiled)) for sample in tagged]
        trials.append(_trial("tags of the template mark the question as well", "mask_alignment", verdicts))
    return trials


def _by_tags(sample: Sample, options: MaskOptions, template: ChatTemplate) -> Verdict:
    try:
        return Verdict(True, derive(sample, options, template).text, {})
    except CheckFailed as error:
        return Verdict(False, str(error), {})


def everything_marked(source: str) -> str:
    """A template whose tags enclose whole chats: masks stay what they are, and so does their second derivation."""
    bare = _TAGS.sub(lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}", source.removesuffix("\n"))
    return f"{{% generation %}}{bare}{{% endgeneration %}}"


def group_trials(store: Store) -> list[Trial]:
    """Corruptions of scored groups."""
    return [trial for folder in splits(store.directory).values() for trial in (*_groups(store, folder), *_rollouts(store, folder))]


def _rows(rows: list[Row], renders: list[Conversation], vocabulary: Vocabulary) -> list[Trial]:
    checks: dict[str, Callable[[Sequence[Row]], tuple[bool, str]]] = {
        "mask_alignment": lambda found: _outcome(prove_masks(found, vocabulary)),
        "row_integrity": lambda found: _outcome(check_records(_store(found), vocabulary_size=vocabulary.size)),
        "tokenization_identity": lambda found: _outcome(
            prove_identity((replace(render, ids=row.ids) for render, row in zip(renders, found, strict=True)), vocabulary)
        ),
    }
    clean = [check(rows) for check in checks.values()]
    trials = [
        Trial("", "every check", len(clean), sum(passed for passed, _ in clean), "; ".join(text for passed, text in clean if not passed))
    ]
    mutations = (*MUTATIONS, *(ATTENTION_MUTATIONS if any((row.mask < 0).any() for row in rows) else ()))
    return [*trials, *(_try(mutation, rows, checks[mutation.caught_by], vocabulary) for mutation in mutations)]


def _groups(store: Store, folder: Path) -> list[Trial]:
    """Every mutation of rows on conversations, the border between prompt and response moved, and rewards spoiled."""
    vocabulary = store.vocabulary
    rows, scores = list(islice(group_rows(store, folder), ROWS)), list(islice(group_scores(store, folder), ROWS))
    renders, prompts = (list(islice(found(store, folder), ROWS)) for found in (group_conversations, group_prompts))
    if not rows:
        return []
    chosen = range(0, len(prompts), max(1, len(prompts) // TRIES))
    clean = [_outcome(prove_identity(prompts, vocabulary)), _outcome(check_rewards(scores))]
    moved = [_outcome(prove_identity([replace(prompts[at], ids=prompts[at].ids[:-1])], vocabulary)) for at in chosen]
    trials = [
        Trial("", "every check of groups", len(clean), sum(passed for passed, _ in clean), "; ".join(text for ok, text in clean if not ok)),
        _trial("border of prompt and response moved", "tokenization_identity", moved),
    ]
    for mutation in REWARD_MUTATIONS:
        changed = [other for at in chosen if (other := mutation.change(scores[at])) is not None]
        trials.append(_trial(mutation.name, "rewards", [_outcome(check_rewards([other])) for other in changed]))
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
        trials.append(_trial(mutation.name, "sampled_ids", [_outcome(check_sampled([other])) for other in changed]))
    return trials


def _trial(name: str, check: str, outcomes: Sequence[tuple[bool, str]]) -> Trial:
    return Trial(name, check, len(outcomes), sum(not passed for passed, _ in outcomes), outcomes[0][1] if outcomes else "")


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


def _outcome(verdict: Verdict) -> tuple[bool, str]:
    return verdict.passed, verdict.summary


def _store(rows: Sequence[Row]) -> TokenStore:
    ends = np.cumsum([len(row.ids) for row in rows])
    loss, attended = unsigned(np.concatenate([row.mask for row in rows]))
    arrays = {"tokens": np.concatenate([row.ids for row in rows]), "loss_mask": loss, ATTENTION: attended.view(np.uint8)}
    return TokenStore(arrays, ends, np.zeros(len(rows), np.int32), np.arange(len(rows)))
