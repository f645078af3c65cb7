"""Prompts with scored responses (offline GRPO), of one domain and of all as one: token ids of prompts and responses, masks and rewards."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.checks import alone
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import IDENTITY, INTEGRITY
from prep_assets.assets.checks.expected_groups import GROUP_ROWS, group_identity, group_mask, group_rewards, group_sampled
from prep_assets.assets.checks.merged import MERGED_RECORDS
from prep_assets.assets.checks.sides import by_prompt
from prep_assets.assets.checks.verification import SELECTION
from prep_assets.assets.columns import GROUPS as COLUMNS
from prep_assets.assets.configured import group_domains
from prep_assets.assets.options import REASONING, TEMPLATE
from prep_assets.assets.previews import group_preview
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Item, domain_recipe, held_out
from prep_assets.assets.reading.reasoning import reasoning_recipe
from prep_assets.assets.reading.source import Source
from prep_assets.assets.stage import Asset, Check, FromParts, FromRows, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.groups import TEST, Tokenize, splits
from prep_assets.assets.writing.in_shards import add
from prep_assets.assets.writing.merging import parts_of
from prep_assets.assets.writing.prompts import prompt_digest
from prep_assets.assets.writing.sampled_groups import stores_logprobs
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.config.models import Rl
from prep_assets.disk.columns import stretches
from prep_assets.errors import StoreError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Group, Turn
from prep_assets.stores.groups import PROMPTS, RESPONSES, GroupStore, GroupWriter, Scored, open_groups
from prep_assets.stores.published import Draft

RAW = "rl_raw"


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's groups depend on."""
    family = workspace.family(Rl)
    return {
        **domain_recipe(workspace, family, RAW, name),
        "test_fraction": family.test_fraction,
        "deduplicate": family.preprocessing.deduplicate,
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(include={"dtype", "max_tokens_per_shard"}),
    }


def folders(family: Rl, names: Iterable[str], payload: Path) -> tuple[Path, ...]:
    """The folder of the groups to train on, and that of those held out, where any of these domains has some."""
    has_test = family.test_fraction > 0 or any(family.domains[name].test_files for name in names)
    return (payload, payload / TEST) if has_test else (payload,)


def _write(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
    """Tokenize every group of a domain, in the order of the sources. The store is always `bin`, as `sft_tokens` is."""
    family = workspace.family(Rl)
    dtype, shard = ids_dtype(family, workspace.vocabulary(family)), family.output.max_tokens_per_shard
    logprobs = stores_logprobs(family)
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        writers = [
            stack.enter_context(GroupWriter("bin", folder, dtype, [name], max_tokens_per_shard=shard, logprobs=logprobs))
            for folder in folders(family, [name], payload)
        ]
        counts = {"read": 0, "kept": 0, "train": 0, "test": 0, "responses": 0, "tokens": 0, "trained_tokens": 0}
        if family.domains[name].options.get("token_ids_key"):
            counts |= {"sampled": 0, "retokenized_otherwise": 0}
        reading = _write_groups(workspace, name, writers, quarantine, counts)
        refused = quarantine.counts
    counted = {**counts, "refused": refused, **passed_over(reading)}
    return Draft(counted, {}, ("ids inside the vocabulary", "a finite reward for each response"))


def _audit(workspace: Workspace, name: str, payload: Path) -> None:
    family = workspace.family(Rl)
    for folder in folders(family, [name], payload):
        for stream in (PROMPTS, RESPONSES):
            audit_stream(folder, stream, workspace.vocabulary(family))
        _audit_rewards(open_groups(folder))


def _audit_rewards(store: GroupStore) -> None:
    rewards = store.rewards.arrays["rewards"]
    infinite = sum(int((~np.isfinite(rewards[part])).sum()) for part in stretches(len(rewards)))
    empty = int((store.rewards.lengths < 1).sum())
    if infinite or empty:
        raise StoreError(f"{infinite:,} rewards are not finite, {empty:,} groups have no response")


def _write_groups(workspace: Workspace, name: str, writers: list[GroupWriter], quarantine: Quarantine, counts: dict[str, int]) -> Reading:
    fraction, reading = workspace.family(Rl).test_fraction, Source.of(workspace, Rl, RAW, name, gives=Group).reading()
    tokenize = Tokenize(workspace, name)
    for items, in_test in reading.examples("tokenize groups", quarantine):
        split: tuple[list[Scored], list[Scored]] = ([], [])
        for item, group in tokenize(items, quarantine):
            to_test = in_test or held_out(prompt_digest(_prompt(item)), fraction)
            split[to_test].append(replace(group, source=0, file=item.record.file))
        for writer, groups in zip(writers, split, strict=False):
            writer.append(groups)
        _count(counts, *split)
    counts["read"] = reading.read
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


def absent(workspace: Workspace) -> str:
    """Without a domain of groups its store would always be empty."""
    found = workspace.has("rl") and group_domains(workspace.family(Rl))
    return "" if found else "no domain of rl.yaml has a schema that gives a Group, as the schema group does"


BY_DOMAIN = Asset(
    name="rl_groups_by_domain",
    family="rl",
    description="Prompts of a domain with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(RAW,),
    options=(
        *TEMPLATE,
        *REASONING,
        "test_fraction",
        "preprocessing.deduplicate",
        "preprocessing.max_seq_len",
        "output.dtype",
        "output.max_tokens_per_shard",
    ),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        GROUP_ROWS,
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
    streams={"train": Stream(GroupStore, None), TEST: Stream(GroupStore, TEST)},
    source=FromRows(Group, alone.groups, by_prompt(Group)),
    domains=group_domains,
    absent=absent,
    columns=COLUMNS,
)


PARTS = "rl_groups_by_domain"


def _depends_on_parts(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the groups depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Rl)
    return {
        "domains": {name: workspace.content(PARTS, name) for name in group_domains(family)},
        "output": family.output.model_dump(),
    }


def _merge(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the groups of all domains, domain by domain."""
    family = workspace.family(Rl)
    names, dtype, output = group_domains(family), ids_dtype(family, workspace.vocabulary(family)), family.output
    shard, logprobs = output.max_tokens_per_shard, stores_logprobs(family)
    parts = parts_of(workspace, PARTS, names)
    with ExitStack() as stack:
        for split, folder in zip(("train", TEST), folders(family, names, payload), strict=False):
            writer = GroupWriter(output.storage_format, folder, dtype, names, max_tokens_per_shard=shard, logprobs=logprobs)
            stack.enter_context(writer)
            for number, part in enumerate(parts.values()):
                if split in (found := splits(part.directory)):
                    writer.append_store(open_groups(found[split]), number)
    counts: dict[str, Any] = {}
    for part in parts.values():
        add(counts, {key: value for key, value in part.manifest.counts.items() if isinstance(value, int)})
    return Draft({**counts, "read": counts["kept"], "refused": {}}, {}, ())


MERGED = Asset(
    name="rl_groups",
    family="rl",
    description="Prompts with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    version=VERSION,
    depends=_depends_on_parts,
    write=_merge,
    upstream=(PARTS,),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, GROUP_ROWS, MERGED_RECORDS),
    preview=group_preview,
    streams={"train": Stream(GroupStore, None), TEST: Stream(GroupStore, TEST)},
    source=FromParts((PARTS,)),
    domains=group_domains,
    absent=absent,
    columns=COLUMNS,
)
