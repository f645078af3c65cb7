"""The assets of the family `rl`: prompts, the arithmetic curriculum, their tokens, and scored groups, by domain and merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY, PLAIN_ROWS
from prep_assets.checks.of_texts import SOURCE_TEXTS
from prep_assets.checks.relations import derived, first_compared
from prep_assets.checks.selection import LINE_SELECTION, SELECTION
from prep_assets.data.quarantine import Quarantine
from prep_assets.extensions.lines.checks import LinesMatch, by_prompt, of_form, rejected_lines
from prep_assets.extensions.lines.merged import MERGED_LINES, MERGED_RECORDS
from prep_assets.extensions.lines.merging import merge_parts, merged_asset
from prep_assets.extensions.lines.tokens import tokenize_lines
from prep_assets.extensions.lines.write import write_lines
from prep_assets.extensions.rl.checks import (
    GROUP_CHECKS,
    GROUP_ROWS,
    PROMPT_IDENTITY,
    Golds,
    arithmetic_golds,
    matched_questions,
    questions_match,
    refused_groups,
    rendered_groups,
    rendered_prompts,
    steps_again,
    whole_again,
)
from prep_assets.extensions.rl.config import Rl, group_domains, prompt_domains
from prep_assets.extensions.rl.groups import merge_groups, sequences, write_groups
from prep_assets.extensions.rl.mutations import GOLD, GROUP_CORRUPTIONS, JUDGES, MATCH, PROMPT_MUTATIONS, TWO_GOLDS
from prep_assets.extensions.rl.prompts import GOLDS, PromptEncoder, prompt_line
from prep_assets.extensions.rl.proofs.golds import check_prompts, claim
from prep_assets.extensions.rl.schemas import arithmetic_rows, gold_as_json_number
from prep_assets.graph.raw import raw_asset, verdict_assets
from prep_assets.pipeline.asset import (
    REASONING,
    TEMPLATE,
    TOKEN_COLUMNS,
    TYPED,
    Asset,
    Check,
    Corruptions,
    FromLines,
    FromParts,
    FromRows,
    Generated,
    Stream,
    Target,
)
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Group, Prompt
from prep_assets.stores.groups import TEST as HELD_OUT
from prep_assets.stores.published import Draft
from prep_assets.stores.table import GROUPS, LINES, TOKENS
from prep_assets.stores.writer import TableWriter

PROMPT_COLUMNS = (("prompt", "string", "The question."), ("gold", "float64", "The right answer."))
GROUP_COLUMNS = (
    ("prompts", "int32[P]", "Token ids of the prompt, ended by the generation prompt."),
    ("responses", "list of int32[R]", "Token ids of each response."),
    ("masks", "list of uint8[R]", "1 where a token of a response is trained."),
    ("rewards", "float32[G]", "The reward of each response."),
)

RL_RAW = raw_asset("rl", "Source files of questions with known answers, pinned by content hash.")
RL_VERDICTS = verdict_assets(RL_RAW)

# RL prompts, of one domain and of all as one: questions with a verifiable answer → ``rl_prompts_train.jsonl`` and ``rl_prompts_test.jsonl``.

TRAIN, TEST = "rl_prompts_train", "rl_prompts_test"
FILES = {TRAIN: Stream(LINES, TRAIN), TEST: Stream(LINES, TEST, held_out=True)}


RL_PROMPTS_BY_DOMAIN = Asset(
    name="rl_prompts_by_domain",
    family="rl",
    description="Prompts of a domain with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.",
    write=partial(write_lines, doing="prompts"),
    promises=("prompts are not empty",),
    inputs=(("raw", RL_RAW), *RL_VERDICTS.items()),
    partitioned=True,
    options=(*REASONING, "test_fraction", "form", "preprocessing.deduplicate"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check(
            "prompt_sanity", "No prompt of a domain has two golds.", lambda store: check_prompts(*(store.lines_of(name) for name in FILES))
        ),
        derived("gold_answers", "Every gold equals a second reading of its source by other code.", Golds),
        derived("source_match", "Every prompt is what its row says, with the gold of that row.", LinesMatch),
        SELECTION,
        SOURCE_TEXTS,
    ),
    streams=FILES,
    source=FromRows(
        Prompt,
        partial(rejected_lines, claim=claim),
        by_prompt,
        plain=True,
        line=prompt_line,
        contradiction=GOLDS,
        oracles={"prompt/not_plain_text": of_form},
    ),
    domains=prompt_domains,
    kind="json",
    columns=PROMPT_COLUMNS,
    corruptions=(Corruptions(lambda store: LinesMatch(store).lines(), (*PROMPT_MUTATIONS, *TWO_GOLDS), JUDGES),),
)


RL_PROMPTS = merged_asset(
    RL_PROMPTS_BY_DOMAIN,
    "Prompts with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.",
    options=(),
    checks=(INTEGRITY, ACCOUNTING, MERGED_LINES),
    may_be_empty=lambda workspace, _: not prompt_domains(workspace.family(Rl)),
)


# The arithmetic curriculum: generated questions that even a weak policy can partly solve → ``arithmetic_prompts.jsonl``, and their token ids.

QUESTIONS, ARITHMETIC_STREAM = "arithmetic_prompts", "arithmetic"


def _questions(workspace: Workspace) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Level and line of each question."""
    options = workspace.family(Rl).arithmetic
    chosen = {} if options.levels is None else {"levels": options.levels}
    for row in arithmetic_rows(options.n, options.largest, options.seed, unique=options.unique, **chosen):
        level = {} if options.levels is None else {"level": str(row["level"])}
        yield str(row["level"]), {"prompt": row["prompt"], "gold": gold_as_json_number(str(row["gold"])), **level}


def _write_arithmetic(target: Target, quarantine: Quarantine) -> Draft:
    """Generate the curriculum."""
    levels = Counter[str]()
    with TableWriter(target.payload, QUESTIONS, LINES, domains=(ARITHMETIC_STREAM,)) as lines:
        for at, (level, line) in enumerate(_questions(target.workspace)):
            levels[f"level_{level}"] += 1
            lines.append_object(line, 0, at)
    return Draft({"read": len(lines), "kept": len(lines), **levels}, {})


ARITHMETIC_PROMPTS = Asset(
    name=QUESTIONS,
    family="rl",
    description="A seeded curriculum of arithmetic questions that even a weak policy can partly solve.",
    write=_write_arithmetic,
    depends=lambda workspace, _: workspace.family(Rl).arithmetic.model_dump(),
    options=("arithmetic",),
    checks=(
        INTEGRITY,
        Check("gold_answers", "Every gold equals its question worked out exactly.", arithmetic_golds),
        Check("source_match", "The questions are those that the options give, in their order.", questions_match),
    ),
    streams={QUESTIONS: Stream(LINES, QUESTIONS)},
    source=Generated(lambda workspace: (line for _, line in _questions(workspace))),
    kind="json",
    columns=PROMPT_COLUMNS,
    corruptions=(Corruptions(matched_questions, PROMPT_MUTATIONS, {name: JUDGES[name] for name in (MATCH, GOLD)}),),
)


# Tokenized RL prompts, what a rollout starts from: of one domain, and of all as one, with the arithmetic curriculum beside them.

STREAM = "prompts"
PROMISES = ("ids inside the vocabulary",)
OPTIONS = (*TEMPLATE, *TYPED, "preprocessing.max_seq_len", "output.dtype", "output.max_tokens_per_shard")
PROMPT_CHECKS = (INTEGRITY, ACCOUNTING, LINE_SELECTION, SOURCE_TEXTS, PLAIN_ROWS, PROMPT_IDENTITY)


ARITHMETIC_TOKENS = Asset(
    name="arithmetic_tokens",
    family="rl",
    description="The arithmetic curriculum as token ids, ended by the template's generation prompt.",
    write=partial(tokenize_lines, what=ARITHMETIC_STREAM),
    promises=PROMISES,
    inputs=(("prompts", ARITHMETIC_PROMPTS),),
    options=OPTIONS,
    checks=PROMPT_CHECKS,
    streams={ARITHMETIC_STREAM: Stream(TOKENS, ARITHMETIC_STREAM)},
    source=FromLines({ARITHMETIC_STREAM: (QUESTIONS, QUESTIONS)}, PromptEncoder, Prompt, rendered_prompts),
    domains=lambda family: (),
    columns=TOKEN_COLUMNS,
)


def _all_held_out(workspace: Workspace, name: str) -> bool:
    """Whether all prompts of a domain are held out, so that nothing is left to tokenize."""
    prompts = workspace.published(RL_PROMPTS_BY_DOMAIN.name, name)
    return prompts is not None and prompts.manifest.counts["kept"] > 0


RL_TOKENS_BY_DOMAIN = Asset(
    name="rl_tokens_by_domain",
    family="rl",
    description="Training prompts of a domain as token ids, ended by the template's generation prompt.",
    write=partial(tokenize_lines, what=STREAM),
    promises=PROMISES,
    inputs=(("prompts", RL_PROMPTS_BY_DOMAIN),),
    partitioned=True,
    options=OPTIONS,
    checks=PROMPT_CHECKS,
    streams={STREAM: Stream(TOKENS, STREAM)},
    source=FromLines({STREAM: (RL_PROMPTS_BY_DOMAIN.name, TRAIN)}, PromptEncoder, Prompt, rendered_prompts),
    domains=prompt_domains,
    may_be_empty=_all_held_out,
    columns=TOKEN_COLUMNS,
)


RL_TOKENS = merged_asset(
    RL_TOKENS_BY_DOMAIN,
    "Training prompts as token ids, ended by the template's generation prompt: what a rollout starts from.",
    promises=PROMISES,
    inputs=(
        ("domains", RL_TOKENS_BY_DOMAIN),
        ("", RL_PROMPTS_BY_DOMAIN),
        ("prompts", RL_PROMPTS),
        ("arithmetic", ARITHMETIC_TOKENS),
        ("prompts", ARITHMETIC_PROMPTS),
    ),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, PLAIN_ROWS, MERGED_RECORDS),
    streams={STREAM: Stream(TOKENS, STREAM), ARITHMETIC_STREAM: Stream(TOKENS, ARITHMETIC_STREAM)},
    source=FromParts((RL_TOKENS_BY_DOMAIN.name, ARITHMETIC_TOKENS.name), {STREAM: (RL_PROMPTS.name, TRAIN)}),
    may_be_empty=lambda workspace, _: False,
)


# Prompts with scored responses (offline GRPO), of one domain and of all as one: token ids of prompts and responses, masks and rewards.

SPLITS = {"train": Stream(GROUPS, None), HELD_OUT: Stream(GROUPS, HELD_OUT)}


def absent(workspace: Workspace) -> str:
    """Without a domain of groups its store would always be empty."""
    has_groups = workspace.has("rl") and group_domains(workspace.family(Rl))
    return "" if has_groups else "no domain of rl.yaml has a schema that gives a Group, as the schema group does"


RL_GROUPS_BY_DOMAIN = Asset(
    name="rl_groups_by_domain",
    family="rl",
    description="Prompts of a domain with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    write=write_groups,
    promises=("ids inside the vocabulary", "a finite reward for each response"),
    inputs=(("raw", RL_RAW), *RL_VERDICTS.items()),
    partitioned=True,
    options=(
        *TEMPLATE,
        *TYPED,
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
        SOURCE_TEXTS,
        GROUP_ROWS,
        *GROUP_CHECKS,
    ),
    streams=SPLITS,
    source=FromRows(
        Group,
        refused_groups,
        by_prompt,
        rendered=rendered_groups,
        sequences=sequences,
        oracles={
            "tokenize/step_inside_token": steps_again,
            **dict.fromkeys(
                (f"tokenize/{reason}" for reason in ("ids_differ_from_text", "lossy_trace", "mask_differs_from_turns")), whole_again
            ),
        },
    ),
    domains=group_domains,
    absent=absent,
    columns=GROUP_COLUMNS,
    corruptions=tuple(
        Corruptions(partial(first_compared, name=check), mutations, {check: judge}, by_stream=True)
        for check, (mutations, judge) in GROUP_CORRUPTIONS.items()
    ),
)


RL_GROUPS = merged_asset(
    RL_GROUPS_BY_DOMAIN,
    "Prompts with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    write=partial(merge_parts, merge=merge_groups),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, GROUP_ROWS, MERGED_RECORDS),
)


ASSETS = (
    RL_RAW,
    *RL_VERDICTS.values(),
    RL_PROMPTS_BY_DOMAIN,
    RL_PROMPTS,
    ARITHMETIC_PROMPTS,
    RL_TOKENS_BY_DOMAIN,
    ARITHMETIC_TOKENS,
    RL_TOKENS,
    RL_GROUPS_BY_DOMAIN,
    RL_GROUPS,
)
