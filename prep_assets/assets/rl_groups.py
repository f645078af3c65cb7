"""RL: prompts with scored responses (offline GRPO) → token ids of prompts and responses, masks and rewards.

A response is rendered with its prompt, once, and tokenized once. What of it is the prompt is what the template writes for the prompt alone, up
to where a model continues; the response is the rest. Where the tokens of the one do not begin with those of the other, the group is refused,
as it is when any response is: a group is whole, or its rewards say something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.build import Build
from prep_assets.assets.preferences import answer_policy
from prep_assets.assets.reading.all_refused import check_domain
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Item, held_out, reading_recipe
from prep_assets.assets.reading.reasoning import inline_reasoning, reasoning_recipe
from prep_assets.assets.reading.rl_domains import group_domains
from prep_assets.assets.reading.source import Source
from prep_assets.assets.rl_prompts import RAW, prompt_digest
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.group_turns import conversation_of, conversations
from prep_assets.assets.writing.sampled_groups import refuse_masked, scored_as_sampled, stores_logprobs
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.config.models import Rl
from prep_assets.errors import CheckFailed, ConfigError, Refused, StoreError
from prep_assets.proofs.trained_texts import MaskOptions, expected_texts
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Group, Sample, Turn
from prep_assets.stores.groups import PROMPTS, RESPONSES, GroupStore, GroupWriter, Scored, open_groups
from prep_assets.stores.published import Draft, Published
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoded, Encoder
from prep_assets.tokenization.policy import MaskPolicy

GROUPS = "rl_groups"
TEST = "test"
"""Folder of the groups that are held out."""
MASK = MaskOptions(mask={})
"""Regions say themselves whether they are trained; no role does."""


def groups_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the groups depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Rl)
    domains = {}
    for name in group_domains(family):
        raw = workspace.published(RAW, name)
        domains[name] = {"raw": raw.manifest.content_hash if raw else None, "schema": reading_recipe(family.domains[name])}
    return {
        "stage": GROUPS,
        "version": VERSION,
        "domains": domains,
        "test_fraction": family.test_fraction,
        "deduplicate": family.preprocessing.deduplicate,
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(),
    }


def groups_build(workspace: Workspace, _: str = "") -> Build:
    """Tokenize every group of every domain that has groups, in the order of the sources."""
    family = workspace.family(Rl)
    names, vocabulary = group_domains(family), workspace.vocabulary(family)
    logprobs = stores_logprobs(family)
    has_test = family.test_fraction > 0 or any(family.domains[name].test_files for name in names)

    def write(payload: Path, quarantine_path: Path) -> Draft:
        output = family.output
        with ExitStack() as stack:
            quarantine = stack.enter_context(Quarantine(quarantine_path))
            writers = [
                stack.enter_context(
                    GroupWriter(
                        output.storage_format,
                        folder,
                        ids_dtype(family, vocabulary),
                        names,
                        max_tokens_per_shard=output.max_tokens_per_shard,
                        logprobs=logprobs,
                    )
                )
                for folder in ((payload, payload / TEST) if has_test else (payload,))
            ]
            counts = {"read": 0, "kept": 0, "train": 0, "test": 0, "responses": 0, "tokens": 0, "trained_tokens": 0}
            counts |= (
                {"sampled": 0, "retokenized_otherwise": 0}
                if any(family.domains[name].options.get("token_ids_key") for name in names)
                else {}
            )
            readings = [_write_domain(workspace, number, name, writers, quarantine, counts) for number, name in enumerate(names)]
            refused = quarantine.counts
        return Draft(
            {**counts, "refused": refused, **passed_over(*readings)}, {}, ("ids inside the vocabulary", "a finite reward for each response")
        )

    def audit(payload: Path) -> None:
        for folder in (payload, payload / TEST) if has_test else (payload,):
            for stream in (PROMPTS, RESPONSES):
                audit_stream(folder, stream, vocabulary)
            _audit_rewards(open_groups(folder))

    return Build(workspace.place(GROUPS), groups_recipe(workspace), groups_recipe(workspace.plain), write, audit)


def _audit_rewards(store: GroupStore) -> None:
    rewards, sizes = np.asarray(store.rewards.arrays["rewards"][:]), np.diff(store.rewards.ends, prepend=0)
    if not np.isfinite(rewards).all() or (sizes < 1).any():
        raise StoreError(f"{(~np.isfinite(rewards)).sum():,} rewards are no finite numbers, {(sizes < 1).sum():,} groups have no response")


def splits(published: Published) -> dict[str, Path]:
    """The folders of a store that hold groups: those to train on, then those held out, where any are."""
    test = published.directory / TEST
    return {"train": published.directory, **({TEST: test} if test.is_dir() else {})}


def _write_domain(
    workspace: Workspace, number: int, name: str, writers: list[GroupWriter], quarantine: Quarantine, counts: dict[str, int]
) -> Reading:
    fraction, reading = workspace.family(Rl).test_fraction, Source.of(workspace, Rl, RAW, name, gives=Group).reading()
    tokenize, before = Tokenize(workspace, name), sum(quarantine.counts.values())
    for items, in_test in reading.examples("tokenize groups", quarantine):
        split: tuple[list[Scored], list[Scored]] = ([], [])
        for item, group in tokenize(items, quarantine):
            to_test = in_test or held_out(prompt_digest(_prompt(item)), fraction)
            split[to_test].append(replace(group, source=number, file=item.record.file))
        for writer, groups in zip(writers, split, strict=False):
            writer.append(groups)
        _count(counts, *split)
    check_domain(name, reading.read, quarantine, before)
    counts["read"] += reading.read
    return reading


def _prompt(item: Item) -> tuple[Turn, ...]:
    return item.example.prompt if isinstance(item.example, Group) else ()


def _count(counts: dict[str, int], train: list[Scored], test: list[Scored]) -> None:
    groups = [*train, *test]
    counts["train"] += len(train)
    counts["test"] += len(test)
    counts["kept"] += len(groups)
    counts["responses"] += sum(len(group.responses) for group in groups)
    counts["tokens"] += sum(len(group.prompt) + sum(map(len, group.responses)) for group in groups)
    counts["trained_tokens"] += sum(int(mask.sum()) for group in groups for mask in group.masks)
    for group in groups:
        if group.retokenized is not None:
            counts["sampled"] = counts.get("sampled", 0) + len(group.responses)
            counts["retokenized_otherwise"] = counts.get("retokenized_otherwise", 0) + group.retokenized


# -- one group --------------------------------------------------------------------------------------------------------------------------


def rewards_of(group: Group) -> npt.NDArray[np.float32]:
    """float32[G].

    Raises:
        Refused: a reward that is no finite float32, or not one for each response.
    """
    with np.errstate(over="ignore"):
        rewards = np.array(group.rewards, np.float64).astype(np.float32)
    if not np.isfinite(rewards).all():
        raise Refused("reward_out_of_range", f"rewards {list(group.rewards)} are not all finite as float32", stage="group")
    if len(rewards) != len(group.responses) or not len(rewards):
        raise Refused("length_mismatch", f"{len(rewards)} rewards for {len(group.responses)} responses", stage="group")
    return rewards


@dataclass(frozen=True, slots=True)
class Renders:
    """A group's prompt, ended by the generation prompt, each of its conversations, and its rewards. What was sampled is not rendered."""

    prompt: Rendered | None
    whole: tuple[Rendered, ...]
    rewards: npt.NDArray[np.float32]
    group: Group


class Tokenize:
    """Blocks of a domain's groups → tokens."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        family = workspace.family(Rl)
        vocabulary, engines = workspace.vocabulary(family), workspace.engines(family)
        self._schema = f"domain {name}: schema {family.domains[name].schema_name!r}"
        self._template: ChatTemplate = workspace.template(family)
        self._reasoning = inline_reasoning(workspace, family)
        self._logprobs = stores_logprobs(family)
        self.prompts = Encoder(vocabulary, engines, MaskPolicy({}, "mask", "none"), None, trains=False)
        self.whole = Encoder(vocabulary, engines, answer_policy(), family.preprocessing.max_seq_len)

    def __call__(self, items: Sequence[Item], quarantine: Quarantine) -> Iterator[tuple[Item, Scored]]:
        """The groups that are kept, with the items they come from; the others are in quarantine."""
        renders: list[Renders | Refused] = [self.renders(item) for item in items]
        good = [each for each in renders if isinstance(each, Renders)]
        prompts = iter(_parts(self.prompts.encode([each.prompt for each in good if each.prompt is not None])))
        whole = iter(_parts(self.whole.encode([each for group in good for each in group.whole])))
        for item, each in zip(items, renders, strict=True):
            try:
                if isinstance(each, Refused):
                    raise each
                prompt, answers = next(prompts) if each.prompt is not None else None, [next(whole) for _ in each.whole]
                yield item, self._scored(prompt, answers, each, item.record.row)
            except Refused as refusal:
                item.refuse(quarantine, refusal)

    def _scored(self, prompt: _Tokens | Refused | None, answers: Sequence[_Tokens | Refused], renders: Renders, row: int) -> Scored:
        if isinstance(prompt, Refused):
            raise prompt
        sampled = renders.group.sampled
        if self._logprobs != (sampled is not None and sampled.logprobs is not None):
            detail = (
                "its responses need log-probabilities"
                if self._logprobs
                else "its log-probabilities are not stored: only the schema group has them"
            )
            raise Refused("logprobs", detail, stage="group")
        if sampled is None:
            assert prompt is not None
            return _scored(prompt, answers, renders.rewards, row)
        head = None if prompt is None else prompt[0]
        return scored_as_sampled(renders.group, head, renders.rewards, self.whole.vocabulary, self.whole.max_seq_len, row)

    def renders(self, item: Item) -> Renders | Refused:
        """The texts of a group, or why it is refused."""
        group = item.example
        if not isinstance(group, Group):
            raise ConfigError(f"{self._schema} with these options gives a {type(group).__name__}; {GROUPS} needs a Group: {item.id}")
        try:
            group = self._reasoning.read(group) if group.sampled is None else group
            if group.sampled is not None:
                refuse_masked(group)
            samples = conversations(group) if group.sampled is None else ()
            given = group.sampled is not None and group.sampled.prompt is not None
            prompt = None if given else render(conversation_of(group, group.prompt), self._template, generation_prompt=True)
            return Renders(prompt, tuple(self._conversation(sample) for sample in samples), rewards_of(group), group)
        except Refused as refusal:
            return refusal

    def _conversation(self, sample: Sample) -> Rendered:
        rendered = render(sample, self._template)
        try:
            expected_texts(sample, MASK, self._template)
        except CheckFailed as error:
            raise Refused("mask_not_provable", str(error), stage="render") from error
        return rendered


_Tokens = tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]


def _parts(encoded: Encoded) -> list[_Tokens | Refused]:
    """Ids and mask of each example of a batch, or why it was refused."""
    found: list[_Tokens | Refused | None] = [None] * (len(encoded.kept) + len(encoded.refused))
    mask = (encoded.loss != 0).astype(np.uint8)
    for number, position in enumerate(encoded.kept.tolist()):
        part = slice(int(encoded.offsets[number]), int(encoded.offsets[number + 1]))
        found[position] = encoded.ids[part], mask[part]
    for position, refusal in encoded.refused:
        found[position] = refusal
    return [each for each in found if each is not None]


def _scored(prompt: _Tokens, answers: Sequence[_Tokens | Refused], rewards: npt.NDArray[np.float32], row: int) -> Scored:
    start = len(prompt[0])
    responses, masks = [], []
    for number, answer in enumerate(answers):
        if isinstance(answer, Refused):
            raise Refused(answer.reason, f"response {number}: {answer.detail}", stage=answer.stage)
        ids, mask = answer
        if not np.array_equal(ids[:start], prompt[0]) or mask[:start].any() or len(ids) == start:
            detail = f"response {number}: its conversation does not begin with the {start} tokens of the prompt and its generation prompt"
            raise Refused("prompt_differs", detail, stage="tokenize")
        responses.append(ids[start:])
        masks.append(mask[start:])
    return Scored(prompt[0], tuple(responses), tuple(masks), rewards, 0, 0, row)
