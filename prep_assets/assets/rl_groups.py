"""RL: prompts with scored responses (offline GRPO) → token ids of prompts and responses, masks and rewards."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.checks import alone
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import IDENTITY, INTEGRITY
from prep_assets.assets.checks.groups import group_identity, group_integrity, group_mask, group_rewards, group_sampled
from prep_assets.assets.checks.selection import SELECTION, by_prompt
from prep_assets.assets.columns import GROUPS as COLUMNS
from prep_assets.assets.options import REASONING, TEMPLATE
from prep_assets.assets.previews.groups import group_preview
from prep_assets.assets.reading.all_refused import check_domain
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Item, domains_recipe, held_out
from prep_assets.assets.reading.reasoning import reasoning_recipe
from prep_assets.assets.reading.rl_domains import group_domains
from prep_assets.assets.reading.source import Source
from prep_assets.assets.selftest.masks import group_trials
from prep_assets.assets.stage import Asset, Check, FromRows, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.groups import TEST, Tokenize
from prep_assets.assets.writing.prompts import prompt_digest
from prep_assets.assets.writing.sampled_groups import stores_logprobs
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.config.models import Rl
from prep_assets.errors import StoreError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Group, Turn
from prep_assets.stores.groups import PROMPTS, RESPONSES, GroupStore, GroupWriter, Scored, open_groups
from prep_assets.stores.published import Draft

RAW = "rl_raw"


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the groups depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Rl)
    return {
        "domains": domains_recipe(workspace, family, RAW, group_domains(family)),
        "test_fraction": family.test_fraction,
        "deduplicate": family.preprocessing.deduplicate,
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(),
    }


def _folders(family: Rl, payload: Path) -> tuple[Path, ...]:
    """The folder of the groups to train on, and that of those held out, where any are."""
    has_test = family.test_fraction > 0 or any(family.domains[name].test_files for name in group_domains(family))
    return (payload, payload / TEST) if has_test else (payload,)


def _write(workspace: Workspace, _: str, payload: Path, quarantine_path: Path) -> Draft:
    """Tokenize every group of every domain that has groups, in the order of the sources."""
    family = workspace.family(Rl)
    names, vocabulary, output = group_domains(family), workspace.vocabulary(family), family.output
    logprobs = stores_logprobs(family)
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
            for folder in _folders(family, payload)
        ]
        counts = {"read": 0, "kept": 0, "train": 0, "test": 0, "responses": 0, "tokens": 0, "trained_tokens": 0}
        if any(family.domains[name].options.get("token_ids_key") for name in names):
            counts |= {"sampled": 0, "retokenized_otherwise": 0}
        readings = [_write_domain(workspace, number, name, writers, quarantine, counts) for number, name in enumerate(names)]
        refused = quarantine.counts
    counted = {**counts, "refused": refused, **passed_over(*readings)}
    return Draft(counted, {}, ("ids inside the vocabulary", "a finite reward for each response"))


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    family = workspace.family(Rl)
    for folder in _folders(family, payload):
        for stream in (PROMPTS, RESPONSES):
            audit_stream(folder, stream, workspace.vocabulary(family))
        _audit_rewards(open_groups(folder))


def _audit_rewards(store: GroupStore) -> None:
    rewards, sizes = np.asarray(store.rewards.arrays["rewards"][:]), np.diff(store.rewards.ends, prepend=0)
    if not np.isfinite(rewards).all() or (sizes < 1).any():
        raise StoreError(f"{(~np.isfinite(rewards)).sum():,} rewards are no finite numbers, {(sizes < 1).sum():,} groups have no response")


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


def _absent(workspace: Workspace) -> str:
    """Without a domain of groups its store would always be empty."""
    found = workspace.has("rl") and group_domains(workspace.family(Rl))
    return "" if found else "no domain of rl.yaml has a schema that gives a Group, as the schema group does"


ASSET = Asset(
    name="rl_groups",
    family="rl",
    description="Prompts with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    upstream=(RAW,),
    options=(*TEMPLATE, *REASONING, "domains", "test_fraction", "preprocessing.deduplicate", "preprocessing.max_seq_len", "output"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        Check("row_integrity", "Ids are inside the vocabulary, and every response trains something.", group_integrity),
        Check(
            "mask_alignment",
            "Trained tokens of every prompt with each of its responses decode to exactly the answer and its stop token.",
            group_mask,
        ),
        Check("tokenization_identity", IDENTITY, group_identity),
        Check(
            "rewards",
            "Every reward is finite, each response of a group has one, and they are those of the source.",
            group_rewards,
        ),
        Check(
            "sampled_ids",
            "Ids and log-probabilities that the source has as sampled are stored as they are, and every sampled token is trained.",
            group_sampled,
        ),
    ),
    preview=group_preview,
    selftest=group_trials,
    streams={"train": Stream(GroupStore, None), TEST: Stream(GroupStore, TEST)},
    source=FromRows(Group, alone.groups, by_prompt(Group)),
    domains=group_domains,
    absent=_absent,
    columns=COLUMNS,
)
