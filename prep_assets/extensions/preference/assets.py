"""The assets of the family `preference`: pairs as lines, then as tokens, by domain and merged."""

from __future__ import annotations

from functools import partial

from prep_assets.checks.of_conversations import IDENTITY
from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY, token_rows
from prep_assets.checks.of_texts import SOURCE_TEXTS
from prep_assets.checks.relations import derived
from prep_assets.checks.selection import LINE_SELECTION, SELECTION
from prep_assets.extensions.lines.checks import LinesMatch, by_prompt, of_form, rejected_lines
from prep_assets.extensions.lines.merged import MERGED_LINES, MERGED_RECORDS
from prep_assets.extensions.lines.merging import merged_asset
from prep_assets.extensions.lines.tokens import tokenize_lines
from prep_assets.extensions.lines.write import write_lines
from prep_assets.extensions.preference.checks import MARGINS, Sides, equal_rewards, first_margins, rendered_pairs
from prep_assets.extensions.preference.lines import LABELS, LEFT_OUT, TIED, is_tied, left_out, pair_line
from prep_assets.extensions.preference.mutations import JUDGES, MARGIN_MUTATIONS, PAIR_MUTATIONS
from prep_assets.extensions.preference.pairs import PairEncoder
from prep_assets.extensions.preference.proofs.pairs import check_margins, check_pairs, claim
from prep_assets.graph.raw import raw_asset, verdict_assets
from prep_assets.pipeline.asset import (
    MASKED_TOKEN_COLUMNS,
    REASONING,
    TEMPLATE,
    TYPED,
    Asset,
    Check,
    Corruptions,
    FromLines,
    FromParts,
    FromRows,
    Store,
    Stream,
)
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Pair
from prep_assets.stores.published import Published
from prep_assets.stores.table import LINES, PAIRS, SIDES, TOKENS

PAIR_COLUMNS = (
    ("prompt", "string", "What both answers reply to."),
    ("chosen", "string", "The preferred answer."),
    ("rejected", "string", "The other answer."),
)

PREFERENCE_RAW = raw_asset("preference", "Source files of preference pairs, pinned by content hash.")
PREFERENCE_VERDICTS = verdict_assets(PREFERENCE_RAW, "max_per_source")

# Preference pairs: those of one domain, and those of all domains as ``preferences.jsonl``, shuffled, with a held-out test file.
#
# Answers with a label instead of a counterpart go to ``unpaired.jsonl``, lists of answers to ``ranked.jsonl``.

TRAIN, TEST = "preferences", "preferences_test"
UNPAIRED, RANKED = "unpaired", "ranked"
FILES = {
    name: Stream(LINES, name, held_out=name.endswith("_test"), **told)
    for names, told in (
        ((TRAIN, TEST), {}),
        ((UNPAIRED, f"{UNPAIRED}_test"), {"column": "label", "several": True}),
        ((RANKED, f"{RANKED}_test"), {"column": "responses"}),
    )
    for name in names
}


def pairs(store: Store) -> Verdict:
    """Pairs, and labelled answers and lists where there are any."""
    return check_pairs(*(store.streams().get(name, ()) for name in FILES), one_domain=bool(store.partition))


SANITY = Check(
    "pair_sanity",
    "One prompt, two different answers, nothing empty, no prompt in both train and test, no answer of a domain labelled good and bad.",
    pairs,
)


PREFERENCES_BY_DOMAIN = Asset(
    name="preferences_by_domain",
    family="preference",
    description="""Pairs of a domain as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`, lists of answers to `ranked.jsonl` and `ranked_test.jsonl`.""",
    write=partial(write_lines, doing="pair"),
    promises=("prompts and answers are not empty", "chosen differs from rejected"),
    inputs=(("raw", PREFERENCE_RAW), *PREFERENCE_VERDICTS.items()),
    partitioned=True,
    options=(*REASONING, "max_per_source", "test_fraction", "form", "preprocessing.deduplicate"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        SANITY,
        derived("source_match", "Every pair is what its row says, prompt and answers, each on its side.", LinesMatch),
        SELECTION,
        SOURCE_TEXTS,
    ),
    streams=FILES,
    source=FromRows(
        Pair,
        partial(rejected_lines, claim=claim),
        by_prompt,
        plain=True,
        line=pair_line,
        counts={TIED: is_tied},
        uncounted={LEFT_OUT: left_out},
        contradiction=LABELS,
        oracles={"pair/not_plain_text": of_form, "pair/equal_rewards": equal_rewards},
    ),
    kind="json",
    columns=PAIR_COLUMNS,
    corruptions=(Corruptions(lambda store: LinesMatch(store).lines(), PAIR_MUTATIONS, JUDGES),),
)


PREFERENCES = merged_asset(
    PREFERENCES_BY_DOMAIN,
    """Pairs of all domains as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`, lists of answers to `ranked.jsonl` and `ranked_test.jsonl`.""",
    options=("seed", "shuffle"),
    checks=(INTEGRITY, ACCOUNTING, SANITY, MERGED_LINES),
)


# Tokenized preferences, of one domain and of all as one, in the order of ``preferences.jsonl``.
#
# Both sides of every pair are token ids with masks; pairs that are held out are in the folder ``test``.

HELD_OUT = "test"
FOLDERS = {"": TRAIN, f"{HELD_OUT}/": TEST}
"""Folder of a pair of streams → the file whose lines they hold."""
SIDES_OF = {f"{folder}{side}": (PREFERENCES.name, name) for folder, name in FOLDERS.items() for side in SIDES}
STREAMS = {
    "pairs": Stream(PAIRS, None),
    HELD_OUT: Stream(PAIRS, HELD_OUT),
    **{name: Stream(TOKENS, name, masked=True) for name in SIDES_OF},
}
PROMISES = ("ids inside the vocabulary", "both sides have the same records")
ROWS = Check("row_integrity", "Ids are inside the vocabulary, and both sides of every pair train something.", token_rows)


def _only_unpaired(workspace: Workspace, name: str) -> bool:
    """Whether all preferences are labelled answers, so that there is no pair to tokenize."""
    published: Published | None = workspace.published(PREFERENCES_BY_DOMAIN.name if name else PREFERENCES.name, name)
    counts = published.manifest.counts if published else {}
    return counts.get("kept", 0) > 0 and not counts["train"] + counts["test"]


PREFERENCE_TOKENS_BY_DOMAIN = Asset(
    name="preference_tokens_by_domain",
    family="preference",
    description="""Both sides of every pair of a domain as token ids, loss on the answer and its stop token only.

Pairs that are held out are in the folder `test`.""",
    write=partial(tokenize_lines, what="pairs"),
    promises=PROMISES,
    inputs=(("pairs", PREFERENCES_BY_DOMAIN),),
    partitioned=True,
    options=(*TEMPLATE, *TYPED, "preprocessing.max_seq_len", "truncation", "output.dtype", "output.max_tokens_per_shard"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        LINE_SELECTION,
        SOURCE_TEXTS,
        ROWS,
        derived("mask_alignment", "Trained tokens of both sides decode to exactly the answers and their stop token.", Sides),
        derived("tokenization_identity", IDENTITY, Sides),
        MARGINS,
    ),
    streams=STREAMS,
    source=FromLines(
        {f"{folder}chosen": (PREFERENCES_BY_DOMAIN.name, name) for folder, name in FOLDERS.items()}, PairEncoder, Pair, rendered_pairs
    ),
    may_be_empty=_only_unpaired,
    columns=MASKED_TOKEN_COLUMNS,
    corruptions=(Corruptions(first_margins, MARGIN_MUTATIONS, {MARGINS.name: check_margins}, by_stream=True),),
)


PREFERENCE_TOKENS = merged_asset(
    PREFERENCE_TOKENS_BY_DOMAIN,
    """Both sides of every pair of all domains as token ids, loss on the answer and its stop token only.

Pairs that are held out are in the folder `test`.""",
    promises=PROMISES,
    inputs=(("domains", PREFERENCE_TOKENS_BY_DOMAIN), ("", PREFERENCES_BY_DOMAIN), ("pairs", PREFERENCES)),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, ROWS, MERGED_RECORDS),
    source=FromParts((PREFERENCE_TOKENS_BY_DOMAIN.name,), SIDES_OF),
)


ASSETS = (
    PREFERENCE_RAW,
    *PREFERENCE_VERDICTS.values(),
    PREFERENCES_BY_DOMAIN,
    PREFERENCES,
    PREFERENCE_TOKENS_BY_DOMAIN,
    PREFERENCE_TOKENS,
)
