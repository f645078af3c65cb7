"""The assets of the family `rl`: prompts, the arithmetic curriculum, their tokens, and scored groups, by domain and merged."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.checks import of_stores
from prep_assets.checks.of_conversations import (
    GROUP_IDENTITY,
    GROUP_MASKS,
    GROUP_REWARDS,
    GROUP_ROWS,
    GROUP_SAMPLED,
    IDENTITY,
    PROMPT_IDENTITY,
)
from prep_assets.checks.of_lines import MERGED_LINES, MERGED_RECORDS, Golds, PromptsMatch, arithmetic_golds, questions_match
from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY, LINE_SELECTION, PLAIN_ROWS, SELECTION, derived, prompt_lines
from prep_assets.checks.sources_again import by_prompt
from prep_assets.config.models import Rl
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused, StoreError
from prep_assets.graph.previews import group_preview, line_preview, record_preview
from prep_assets.pipeline.asset import (
    GROUP_COLUMNS,
    PROMPT_COLUMNS,
    REASONING,
    RL_VERSION,
    TEMPLATE,
    TOKEN_COLUMNS,
    Asset,
    Check,
    FromLines,
    FromParts,
    FromRows,
    Stream,
)
from prep_assets.pipeline.examples import Item, Reading, Source, domain_recipe, held_out, passed_over
from prep_assets.pipeline.groups import TEST as HELD_OUT
from prep_assets.pipeline.groups import Tokenize, splits, stores_logprobs
from prep_assets.pipeline.lines import UNTEMPLATED, RowForm, in_one_form, is_untemplated, row_in_form, says_something
from prep_assets.pipeline.pairs import OPTIONS, prompt_digest, prompt_of, prompt_row, prompt_tokens_recipe, write_prompt_tokens
from prep_assets.pipeline.sources import reasoning_recipe, unrendered_reasoning
from prep_assets.pipeline.tokens import add, audit_stream, by_domain, ids_dtype, merge_lines, merge_tokens, parts_of, tokenizer_recipe
from prep_assets.pipeline.workspace import Workspace, build_command, group_domains, prompt_domains
from prep_assets.samples import Group, Prompt, Turn
from prep_assets.schemas.rewards import arithmetic_rows, gold_as_json_number
from prep_assets.stores.arrays import stretches
from prep_assets.stores.groups import PROMPTS, RESPONSES, GroupStore, GroupWriter, Scored, open_groups
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import RecordWriter, TokenStore, append_store, open_tokens, record_writer

# RL prompts, of one domain and of all as one: questions with a verifiable answer → ``rl_prompts_train.jsonl`` and ``rl_prompts_test.jsonl``.

RAW = "rl_raw"
TRAIN, TEST = "rl_prompts_train", "rl_prompts_test"


def _depends_prompts(workspace: Workspace, name: str) -> dict[str, Any]:
    """What the prompt files of a domain depend on."""
    family = workspace.family(Rl)
    return {
        **domain_recipe(workspace, family, RAW, name),
        "test_fraction": family.test_fraction,
        "form": family.form,
        **reasoning_recipe(family),
        "deduplicate": family.preprocessing.deduplicate,
    }


def _write_prompts(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
    """Write a domain's prompts with their gold answers, in the order of the sources."""
    form = workspace.family(Rl).form
    return in_one_form(form, payload, lambda form, auto: _write_prompts_in(workspace, name, payload, quarantine_path, form, auto))


def _audit_prompts(workspace: Workspace, _: str, payload: Path) -> None:
    for name in (TRAIN, TEST):
        for number, row in enumerate(open_lines(payload, name)):
            if not says_something(row["prompt"]):
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty prompt")


def _write_prompts_in(workspace: Workspace, name: str, payload: Path, quarantine_path: Path, form: RowForm, auto: bool) -> Draft:
    family = workspace.family(Rl)
    reasoning, reading = unrendered_reasoning(family), Source.of(workspace, Rl, RAW, name, gives=Prompt).reading()
    untemplated = 0
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        train, test = (stack.enter_context(LinesWriter(payload, file, (name,))) for file in (TRAIN, TEST))
        for items, in_test in reading.examples("prompts", quarantine):
            for item in items:
                try:
                    prompt = prompt_of(reasoning.read(item.example))
                    row = row_in_form(partial(prompt_row, prompt), form, auto)
                except Refused as refusal:
                    item.refuse(quarantine, refusal)
                    continue
                untemplated += is_untemplated(prompt)
                target = test if in_test or held_out(prompt_digest(prompt.prompt), family.test_fraction) else train
                target.append(row, source=0, file=item.record.file, at=item.record.row)
        books = {"kept": len(train) + len(test), "train": len(train), "test": len(test), "refused": quarantine.counts}
    counts = {"read": reading.read, **books, **({UNTEMPLATED: untemplated} if untemplated else {}), **passed_over(reading)}
    return Draft(counts, {}, ("prompts are not empty",))


RL_PROMPTS_BY_DOMAIN = Asset(
    name="rl_prompts_by_domain",
    family="rl",
    description="Prompts of a domain with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.",
    version=RL_VERSION,
    depends=_depends_prompts,
    write=_write_prompts,
    audit=_audit_prompts,
    partitioned=True,
    upstream=(RAW,),
    options=(*REASONING, "test_fraction", "form", "preprocessing.deduplicate"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        derived("gold_answers", "Every gold equals a second reading of its source by other code.", Golds),
        derived("source_match", "Every prompt is what its row says, with the gold of that row.", PromptsMatch),
        SELECTION,
    ),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST)},
    source=FromRows(Prompt, of_stores.prompts, by_prompt, plain=True),
    domains=prompt_domains,
    kind="json",
    columns=PROMPT_COLUMNS,
)


PROMPT_PARTS = "rl_prompts_by_domain"


def _depends_merged_prompts(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the prompt files depend on. Domains are sorted, so their order in the configuration does not matter."""
    return {"domains": {name: workspace.content(PROMPT_PARTS, name) for name in prompt_domains(workspace.family(Rl))}}


def _merge_prompts(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the files of all domains as one each, in the order of the domains."""
    parts = parts_of(workspace, PROMPT_PARTS, prompt_domains(workspace.family(Rl)))
    lines = {TRAIN: 0, TEST: 0} | merge_lines(parts, payload, {TRAIN: None, TEST: None})
    read = sum(part.manifest.counts["kept"] for part in parts.values())
    return Draft({"read": read, "kept": sum(lines.values()), "train": lines[TRAIN], "test": lines[TEST], "refused": {}}, {}, ())


RL_PROMPTS = Asset(
    name="rl_prompts",
    family="rl",
    description="Prompts with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.",
    version=RL_VERSION,
    depends=_depends_merged_prompts,
    write=_merge_prompts,
    upstream=(PROMPT_PARTS,),
    checks=(INTEGRITY, ACCOUNTING, MERGED_LINES),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST)},
    source=FromParts((PROMPT_PARTS,)),
    domains=prompt_domains,
    may_be_empty=lambda workspace, _: not prompt_domains(workspace.family(Rl)),
    kind="json",
    columns=PROMPT_COLUMNS,
)


# The arithmetic curriculum: generated questions that even a weak policy can partly solve → ``arithmetic_prompts.jsonl``, and their token ids.

QUESTIONS = "arithmetic_prompts"


def _depends_arithmetic(workspace: Workspace, _: str) -> dict[str, Any]:
    return workspace.family(Rl).arithmetic.model_dump()


def _write_arithmetic(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Generate the curriculum."""
    options = workspace.family(Rl).arithmetic
    levels: dict[str, int] = {}
    chosen = {} if options.levels is None else {"levels": options.levels}
    with LinesWriter(payload, QUESTIONS, ("arithmetic",)) as lines:
        for at, row in enumerate(arithmetic_rows(options.n, options.largest, options.seed, unique=options.unique, **chosen)):
            level = str(row["level"])
            levels[level] = levels.get(level, 0) + 1
            shown = {"prompt": row["prompt"], "gold": gold_as_json_number(str(row["gold"]))}
            if options.levels is not None:
                shown["level"] = level
            lines.append(shown, source=0, file=0, at=at)
        count = len(lines)
    return Draft({"read": count, "kept": count, "refused": {}, **{f"level_{name}": n for name, n in levels.items()}}, {}, ())


ARITHMETIC_PROMPTS = Asset(
    name=QUESTIONS,
    family="rl",
    description="A seeded curriculum of arithmetic questions that even a weak policy can partly solve.",
    version=RL_VERSION,
    depends=_depends_arithmetic,
    write=_write_arithmetic,
    options=("arithmetic",),
    checks=(
        INTEGRITY,
        Check("gold_answers", "Every gold equals its question worked out exactly.", arithmetic_golds),
        Check("source_match", "The questions are those that the options give, in their order.", questions_match),
    ),
    preview=line_preview,
    streams={QUESTIONS: Stream(Lines, QUESTIONS)},
    kind="json",
    columns=PROMPT_COLUMNS,
)


ARITHMETIC_STREAM = "arithmetic"


def _depends_arithmetic_tokens(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized questions depend on."""
    return {"prompts": workspace.content(QUESTIONS), **prompt_tokens_recipe(workspace)}


def _write_arithmetic_tokens(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Tokenize the curriculum."""
    directory = open_published(workspace.stores, QUESTIONS, remedy=build_command(QUESTIONS)).directory
    return write_prompt_tokens(workspace, directory, QUESTIONS, ARITHMETIC_STREAM, payload, quarantine, "tokenize arithmetic")


def _audit_arithmetic_tokens(workspace: Workspace, _: str, payload: Path) -> None:
    audit_stream(payload, ARITHMETIC_STREAM, workspace.vocabulary(workspace.family(Rl)))


ARITHMETIC_TOKENS = Asset(
    name="arithmetic_tokens",
    family="rl",
    description="The arithmetic curriculum as token ids, ended by the template's generation prompt.",
    version=RL_VERSION,
    depends=_depends_arithmetic_tokens,
    write=_write_arithmetic_tokens,
    audit=_audit_arithmetic_tokens,
    upstream=(QUESTIONS,),
    options=OPTIONS,
    checks=(INTEGRITY, ACCOUNTING, LINE_SELECTION, PLAIN_ROWS, PROMPT_IDENTITY),
    preview=record_preview,
    streams={ARITHMETIC_STREAM: Stream(TokenStore, ARITHMETIC_STREAM)},
    source=FromLines({ARITHMETIC_STREAM: (QUESTIONS, QUESTIONS)}, prompt_lines),
    domains=lambda family: (),
    columns=TOKEN_COLUMNS,
)


# Tokenized RL prompts, what a rollout starts from: of one domain, and of all as one, with the arithmetic curriculum beside them.

STREAM = "prompts"


def _depends_tokens(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's tokenized prompts depend on."""
    return {"domain": name, "prompts": workspace.content(PROMPT_PARTS, name), **prompt_tokens_recipe(workspace)}


def _write_tokens(workspace: Workspace, name: str, payload: Path, quarantine: Path) -> Draft:
    """Tokenize the training prompts of a domain."""
    directory = open_published(workspace.stores, PROMPT_PARTS, name, remedy=build_command(PROMPT_PARTS, name)).directory
    return write_prompt_tokens(workspace, directory, TRAIN, STREAM, payload, quarantine, f"tokenize prompts of {name}")


def _all_held_out(workspace: Workspace, name: str) -> bool:
    """Whether all prompts of a domain are held out, so that nothing is left to tokenize."""
    prompts = workspace.published(PROMPT_PARTS, name)
    return prompts is not None and prompts.manifest.counts["kept"] > 0


def _audit_tokens(workspace: Workspace, _: str, payload: Path) -> None:
    audit_stream(payload, STREAM, workspace.vocabulary(workspace.family(Rl)))


RL_TOKENS_BY_DOMAIN = Asset(
    name="rl_tokens_by_domain",
    family="rl",
    description="Training prompts of a domain as token ids, ended by the template's generation prompt.",
    version=RL_VERSION,
    depends=_depends_tokens,
    write=_write_tokens,
    audit=_audit_tokens,
    partitioned=True,
    upstream=(PROMPT_PARTS,),
    options=OPTIONS,
    checks=(INTEGRITY, ACCOUNTING, LINE_SELECTION, PLAIN_ROWS, PROMPT_IDENTITY),
    preview=record_preview,
    streams={STREAM: Stream(TokenStore, STREAM)},
    source=FromLines({STREAM: (PROMPT_PARTS, TRAIN)}, prompt_lines),
    domains=prompt_domains,
    may_be_empty=_all_held_out,
    columns=TOKEN_COLUMNS,
)


MERGED_PROMPTS, TOKEN_PARTS = RL_PROMPTS.name, "rl_tokens_by_domain"
QUESTION_TOKENS = ARITHMETIC_TOKENS.name


def _depends_merged_tokens(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized prompts depend on."""
    family = workspace.family(Rl)
    return {
        "prompts": {asset: workspace.content(asset) for asset in (MERGED_PROMPTS, QUESTIONS)},
        "domains": {name: workspace.content(TOKEN_PARTS, name) for name in prompt_domains(family)},
        "arithmetic": workspace.content(QUESTION_TOKENS),
        "output": family.output.model_dump(),
    }


def _merge_tokens(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the tokens of all domains, and those of the curriculum."""
    parts = parts_of(workspace, TOKEN_PARTS, prompt_domains(workspace.family(Rl)))
    questions = open_published(workspace.stores, QUESTION_TOKENS, remedy=build_command(QUESTION_TOKENS))
    with _writer(workspace, payload, STREAM) as writer:
        merge_tokens(workspace, STREAM, parts, (MERGED_PROMPTS, TRAIN), writer)
    with _writer(workspace, payload, ARITHMETIC_STREAM) as writer:
        append_store(writer, open_tokens(questions.directory, ARITHMETIC_STREAM))
    merged = (*parts.values(), questions)
    kept, tokens = (sum(part.manifest.counts[key] for part in merged) for key in ("kept", "tokens"))
    return Draft({"read": kept, "kept": kept, "tokens": tokens, "refused": {}}, {}, ("ids inside the vocabulary",))


def _writer(workspace: Workspace, payload: Path, stream: str) -> RecordWriter:
    family = workspace.family(Rl)
    dtypes, output = {"tokens": ids_dtype(family, workspace.vocabulary(family))}, family.output
    return record_writer(output.storage_format, payload, stream, dtypes, max_tokens_per_shard=output.max_tokens_per_shard)


def _audit_merged_tokens(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    for stream in (STREAM, ARITHMETIC_STREAM):
        audit_stream(payload, stream, vocabulary)


RL_TOKENS = Asset(
    name="rl_tokens",
    family="rl",
    description="Training prompts as token ids, ended by the template's generation prompt: what a rollout starts from.",
    version=RL_VERSION,
    depends=_depends_merged_tokens,
    write=_merge_tokens,
    audit=_audit_merged_tokens,
    upstream=(TOKEN_PARTS, by_domain(MERGED_PROMPTS), MERGED_PROMPTS, QUESTION_TOKENS, QUESTIONS),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, PLAIN_ROWS, MERGED_RECORDS),
    preview=record_preview,
    streams={name: Stream(TokenStore, name) for name in (STREAM, ARITHMETIC_STREAM)},
    source=FromParts((TOKEN_PARTS, QUESTION_TOKENS), {STREAM: (MERGED_PROMPTS, TRAIN)}),
    domains=prompt_domains,
    columns=TOKEN_COLUMNS,
)


# Prompts with scored responses (offline GRPO), of one domain and of all as one: token ids of prompts and responses, masks and rewards.


def _depends_groups(workspace: Workspace, name: str) -> dict[str, Any]:
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
    return (payload, payload / HELD_OUT) if has_test else (payload,)


def _write_groups(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
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
        reading = _write_domain(workspace, name, writers, quarantine, counts)
        refused = quarantine.counts
    counted = {**counts, "refused": refused, **passed_over(reading)}
    return Draft(counted, {}, ("ids inside the vocabulary", "a finite reward for each response"))


def _audit_groups(workspace: Workspace, name: str, payload: Path) -> None:
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


def _write_domain(workspace: Workspace, name: str, writers: list[GroupWriter], quarantine: Quarantine, counts: dict[str, int]) -> Reading:
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


RL_GROUPS_BY_DOMAIN = Asset(
    name="rl_groups_by_domain",
    family="rl",
    description="Prompts of a domain with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    version=RL_VERSION,
    depends=_depends_groups,
    write=_write_groups,
    audit=_audit_groups,
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
        derived(
            "mask_alignment",
            "Trained tokens of every prompt with each of its responses decode to exactly the answer and its stop token.",
            GROUP_MASKS,
        ),
        derived("tokenization_identity", IDENTITY, GROUP_IDENTITY),
        derived(
            "rewards",
            "Every reward is finite, each response of a group has one, and they are those of the source.",
            GROUP_REWARDS,
        ),
        derived(
            "sampled_ids",
            "Ids and log-probabilities that the source has as sampled are stored as they are, and every sampled token is trained.",
            GROUP_SAMPLED,
        ),
    ),
    preview=group_preview,
    streams={"train": Stream(GroupStore, None), HELD_OUT: Stream(GroupStore, HELD_OUT)},
    source=FromRows(Group, of_stores.groups, by_prompt),
    domains=group_domains,
    absent=absent,
    columns=GROUP_COLUMNS,
)


GROUP_PARTS = "rl_groups_by_domain"


def _depends_merged_groups(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the groups depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Rl)
    return {
        "domains": {name: workspace.content(GROUP_PARTS, name) for name in group_domains(family)},
        "output": family.output.model_dump(),
    }


def _merge_groups(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the groups of all domains, domain by domain."""
    family = workspace.family(Rl)
    names, dtype, output = group_domains(family), ids_dtype(family, workspace.vocabulary(family)), family.output
    shard, logprobs = output.max_tokens_per_shard, stores_logprobs(family)
    parts = parts_of(workspace, GROUP_PARTS, names)
    with ExitStack() as stack:
        for split, folder in zip(("train", HELD_OUT), folders(family, names, payload), strict=False):
            writer = GroupWriter(output.storage_format, folder, dtype, names, max_tokens_per_shard=shard, logprobs=logprobs)
            stack.enter_context(writer)
            for number, part in enumerate(parts.values()):
                if split in (found := splits(part.directory)):
                    writer.append_store(open_groups(found[split]), number)
    counts: dict[str, Any] = {}
    for part in parts.values():
        add(counts, {key: value for key, value in part.manifest.counts.items() if isinstance(value, int)})
    return Draft({**counts, "read": counts["kept"], "refused": {}}, {}, ())


RL_GROUPS = Asset(
    name="rl_groups",
    family="rl",
    description="Prompts with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    version=RL_VERSION,
    depends=_depends_merged_groups,
    write=_merge_groups,
    upstream=(GROUP_PARTS,),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, GROUP_ROWS, MERGED_RECORDS),
    preview=group_preview,
    streams={"train": Stream(GroupStore, None), HELD_OUT: Stream(GroupStore, HELD_OUT)},
    source=FromParts((GROUP_PARTS,)),
    domains=group_domains,
    absent=absent,
    columns=GROUP_COLUMNS,
)


ASSETS = (
    RL_PROMPTS_BY_DOMAIN,
    RL_PROMPTS,
    ARITHMETIC_PROMPTS,
    RL_TOKENS_BY_DOMAIN,
    ARITHMETIC_TOKENS,
    RL_TOKENS,
    RL_GROUPS_BY_DOMAIN,
    RL_GROUPS,
)
