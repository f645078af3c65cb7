"""Selftest of token rows with a mask: conversations, both sides of pairs, scored groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from prep_assets.assets.checks.conversations import Chats
from prep_assets.assets.checks.expected import sft_blocks, sft_reading
from prep_assets.assets.checks.expected_groups import group_conversations, group_prompts, group_rows, group_samples, group_scores
from prep_assets.assets.selftest.trials import ROWS, TRIES, Trial, clean, stream_of, trials_of, tried
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.groups import splits
from prep_assets.config.models import Sft
from prep_assets.errors import CheckFailed
from prep_assets.proofs.group_mutations import REWARD_MUTATIONS, ROLLOUT_MUTATIONS
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.mask import Row, prove_masks
from prep_assets.proofs.mutations import ATTENTION_MUTATIONS, MUTATIONS, Mutation
from prep_assets.proofs.rewards import check_rewards
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.sampled import check_sampled
from prep_assets.proofs.stretches import MaskOptions
from prep_assets.proofs.trained_texts import derive
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat, Sample
from prep_assets.stores.tokens import ATTENTION, TokenStore, unsigned
from prep_assets.templates.chat_template import ChatTemplate, marks_generated
from prep_assets.tokenization.vocabulary import Vocabulary

_TAGS = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


def masked_trials(kind: type[Chats], store: Store) -> list[Trial]:
    """Corruptions of every stream of a store of such conversations."""
    found, chats = list[Trial](), kind(store)
    for name in store.streams():
        rows = [row for _, row in islice(chats.rows(name), ROWS)]
        found += _rows(rows, list(islice(chats.renders(name), ROWS)), store.vocabulary)
    return found


def sft_trials(store: Store) -> list[Trial]:
    """Corruptions of conversations, and of the tags of their template where it has any."""
    template = store.workspace.template(store.workspace.family(Sft))
    marked, read, trials = template.training or template.source, sft_reading(store), masked_trials(Chats, store)
    if not marks_generated(marked):
        return trials
    options = MaskOptions(**{key: store.recipe[key] for key in MaskOptions.__dataclass_fields__})
    spoiled = replace(template, training=everything_marked(marked))
    for stream in store.streams().values():
        examples = islice(chain.from_iterable(some.sources for some in sft_blocks(store, stream)), TRIES)
        samples = [read(example) if isinstance(example, PlainChat) else example for example in examples]
        tagged = [sample for sample in samples if sample.tokenized is None and derive(sample, options, template).tagged]
        verdicts = [_by_tags(sample, options, spoiled) for sample in tagged]
        trials.append(tried("tags of the template mark the question as well", "mask_alignment", verdicts))
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
    checks: dict[str, Callable[[Sequence[Row]], Verdict]] = {
        "mask_alignment": lambda found: prove_masks(found, vocabulary),
        "row_integrity": lambda found: check_records(_stream(found), vocabulary_size=vocabulary.size),
        "tokenization_identity": lambda found: prove_identity(
            (replace(render, ids=row.ids) for render, row in zip(renders, found, strict=True)), vocabulary
        ),
    }
    mutations = (*MUTATIONS, *(ATTENTION_MUTATIONS if any((row.mask < 0).any() for row in rows) else ()))
    return trials_of(rows, len(rows), mutations, checks, vocabulary)


def _groups(store: Store, folder: Path) -> list[Trial]:
    """Every mutation of rows on conversations, the border between prompt and response moved, and rewards spoiled."""
    vocabulary = store.vocabulary
    rows, renders = list(islice(group_rows(store, folder), ROWS)), list(islice(group_conversations(store, folder), ROWS))
    prompts, scores = list(islice(group_prompts(store, folder), ROWS)), list(islice(group_scores(store, folder), ROWS))
    if not rows:
        return []
    moved = Mutation("border of prompt and response moved", "tokenization_identity", lambda found, at: [_without_last(found[at])])
    proven = {"tokenization_identity": partial(prove_identity, vocabulary=vocabulary)}
    border = trials_of(prompts, len(prompts), (moved,), proven)
    rewards = trials_of(scores, len(scores), REWARD_MUTATIONS, {"rewards": check_rewards})
    groups = clean("every check of groups", [prove_identity(prompts, vocabulary), check_rewards(scores)])
    return [*_rows(rows, renders, vocabulary), groups, *border[1:], *rewards[1:]]


def _without_last(prompt: Conversation) -> Conversation:
    return replace(prompt, ids=prompt.ids[:-1])


def _rollouts(store: Store, folder: Path) -> list[Trial]:
    """Sampled ids spoiled, where the source has them."""
    groups = list(islice(group_samples(store, folder), TRIES))
    return trials_of(groups, len(groups), ROLLOUT_MUTATIONS, {"sampled_ids": check_sampled}, what="sampled_ids")


def _stream(rows: Sequence[Row]) -> TokenStore:
    loss, attended = unsigned(np.concatenate([row.mask for row in rows]))
    return stream_of([row.ids for row in rows], loss_mask=loss, **{ATTENTION: attended.view(np.uint8)})
