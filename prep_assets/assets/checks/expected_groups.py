"""What checks compare stores of scored groups with: the sources, read again; and the checks of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prep_assets.assets.checks.every_store import together
from prep_assets.assets.checks.expected import fresh_render
from prep_assets.assets.checks.stored_rows import source_records
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.pinned import domain_of
from prep_assets.assets.stage import Check, Store
from prep_assets.assets.writing.groups import conversation_of, conversations, splits
from prep_assets.config.models import Rl
from prep_assets.disk.columns import at, equals, where
from prep_assets.errors import Refused, StoreError
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.inline_reasoning import group_again
from prep_assets.proofs.mask import Row, prove_masks
from prep_assets.proofs.plain_forms import PlainDerivation, answers_derivation
from prep_assets.proofs.rewards import Scores, check_rewards
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.sampled import Rollout, check_sampled
from prep_assets.proofs.trained_texts import MaskOptions
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Group, Sample
from prep_assets.schemas.reader import apply
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.tokens import TokenStore


def _groups(store: Store, stored: GroupStore) -> Iterator[tuple[int, str, Group]]:
    """Number in the store, id and source of each group.

    Raises:
        StoreError: a record of the store gives no group, or is not in its source.
    """
    family = store.workspace.family(Rl)
    shown = store.workspace.template(family).shows_thinking
    for number, name in enumerate(stored.sources):
        domain, mine = domain_of(family, name), where(equals(stored.source, number))
        convert = converter(domain, Group)
        view = TokenStore({}, mine, at(stored.prompts.file, mine), at(stored.prompts.row, mine))
        for place, identity, payload in source_records(store, name, view) if len(mine) else ():
            try:
                group = apply(convert, payload)
            except Refused as refusal:
                raise StoreError(f"the store holds {name}/{identity}, which its schema refuses: {refusal}") from refusal
            if not isinstance(group, Group):
                raise StoreError(f"the store holds {name}/{identity}, which its schema reads as a {type(group).__name__}")
            yield int(mine[place]), f"{name}/{identity}", group_again(group, family.model_dump(), shown=shown)


def _pairs(store: Store, stored: GroupStore) -> Iterator[tuple[int, str, Group, tuple[tuple[int, str, Sample], ...]]]:
    """Number, id and source of each group whose texts were tokenized, and of each of its responses the record number, the id and the
    conversation.

    Raises:
        StoreError: another number of responses than in the source.
    """
    for number, identity, group in _groups(store, stored):
        if group.sampled is not None:
            continue
        try:
            records, samples = stored.responses_of(number), conversations(group)
        except Refused as refusal:
            raise StoreError(f"the store holds {identity}, which cannot be read as a conversation: {refusal}") from refusal
        if len(records) != len(samples):
            raise StoreError(f"{identity}: {len(records)} responses are stored, the source has {len(samples)}")
        listed = zip(records, samples, strict=True)
        yield number, identity, group, tuple((record, f"{identity}, response {i}", sample) for i, (record, sample) in enumerate(listed))


def group_rows(store: Store, folder: Path) -> Iterator[Row]:
    """Each prompt with each of its responses, and what must be trained of them."""
    stored, derivation = open_groups(folder), answers_derivation(store.workspace.template(store.workspace.family(Rl)))
    for number, _, _, responses in _pairs(store, stored):
        for record, identity, sample in responses:
            yield Row(identity, *stored.conversation(number, record), derivation(sample).expected)


def group_conversations(store: Store, folder: Path) -> Iterator[Conversation]:
    """Each prompt with each of its responses, and a fresh render of both."""
    stored, template = open_groups(folder), store.workspace.template(store.workspace.family(Rl))
    for number, _, _, responses in _pairs(store, stored):
        for record, identity, sample in responses:
            yield fresh_render(identity, stored.conversation(number, record)[0], sample, template)


def group_prompts(store: Store, folder: Path) -> Iterator[Conversation]:
    """Each prompt, and a fresh render of it with the generation prompt: where the prompt ends and the response begins."""
    stored, template = open_groups(folder), store.workspace.template(store.workspace.family(Rl))
    derive = PlainDerivation(MaskOptions(), template, typed_controls=False, prompted=True)
    for number, identity, group in _groups(store, stored):
        if group.sampled is not None and group.sampled.prompt is not None:
            continue
        derived = derive(conversation_of(group, group.prompt))
        ids = stored.prompts.record(number, "tokens")
        yield Conversation(f"{identity}, prompt", ids, derived.text, derived.controls, derived.typed)


def group_scores(store: Store, folder: Path) -> Iterator[Scores]:
    """Each group's rewards, and those of its source."""
    stored = open_groups(folder)
    for number, identity, group in _groups(store, stored):
        yield Scores(identity, stored.rewards.record(number, "rewards"), len(stored.responses_of(number)), group.rewards)


def group_samples(store: Store, folder: Path) -> Iterator[Rollout]:
    """Each group whose source has the sampled ids, with what is stored of it."""
    stored = open_groups(folder)
    for number, identity, group in _groups(store, stored):
        if group.sampled is None:
            continue
        keys, records = tuple(stored.responses.arrays), stored.responses_of(number)
        rollout = [{key: stored.responses.record(record, key).tolist() for key in keys} for record in records]
        yield Rollout(identity, stored.prompts.record(number, "tokens").tolist(), rollout, group.sampled)


def group_integrity(store: Store) -> Verdict:
    """The rows of prompts and responses."""
    size, groups = store.vocabulary.size, [open_groups(folder) for folder in splits(store.directory).values()]
    return together(check_records(stream, vocabulary_size=size) for each in groups for stream in (each.prompts, each.responses))


GROUP_ROWS = Check("row_integrity", "Ids are inside the vocabulary, and every response trains something.", group_integrity)


def group_mask(store: Store) -> Verdict:
    """The masks of responses."""
    return together(prove_masks(group_rows(store, folder), store.vocabulary) for folder in splits(store.directory).values())


def group_identity(store: Store) -> Verdict:
    """The tokens of prompts and responses against fresh renders."""
    evidence = (found(store, folder) for folder in splits(store.directory).values() for found in (group_conversations, group_prompts))
    return together(prove_identity(each, store.vocabulary) for each in evidence)


def group_rewards(store: Store) -> Verdict:
    """The rewards against those of the source."""
    return together(check_rewards(group_scores(store, folder)) for folder in splits(store.directory).values())


def group_sampled(store: Store) -> Verdict:
    """Sampled ids and log-probabilities against those of the source."""
    return together(check_sampled(group_samples(store, folder)) for folder in splits(store.directory).values())
