"""The assets of the family `preference`: pairs as lines, then as tokens, by domain and merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.checks import of_stores
from prep_assets.checks.of_conversations import IDENTITY, Sides
from prep_assets.checks.of_lines import MERGED_LINES, MERGED_RECORDS, PairsMatch
from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY, LINE_SELECTION, SELECTION, derived, pair_lines, token_rows
from prep_assets.checks.sources_again import by_prompt
from prep_assets.config.models import Preference
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused, StoreError
from prep_assets.exports.readable import Pairs
from prep_assets.graph.previews import line_preview, record_preview
from prep_assets.pipeline.asset import (
    MASKED_TOKEN_COLUMNS,
    PAIR_COLUMNS,
    PREFERENCE_VERSION,
    REASONING,
    TEMPLATE,
    Asset,
    Check,
    FromLines,
    FromParts,
    FromRows,
    Store,
    Stream,
)
from prep_assets.pipeline.examples import Given, Item, Reading, Source, domain_recipe, held_out, passed_over
from prep_assets.pipeline.lines import (
    UNPAIRED,
    UNPAIRED_TEST,
    UNTEMPLATED,
    RowForm,
    UnpairedFiles,
    in_one_form,
    is_untemplated,
    preference_row,
    row_in_form,
    says_something,
)
from prep_assets.pipeline.pairs import SIDES, PairEncoder, chat_digest, prompt_digest
from prep_assets.pipeline.sources import reasoning_recipe, unrendered_reasoning
from prep_assets.pipeline.tokens import (
    Batch,
    Streams,
    add,
    audit_stream,
    by_domain,
    encode_lines,
    ids_dtype,
    merge_lines,
    merge_tokens,
    parts_of,
    tokenizer_recipe,
)
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.proofs.rows import PAIR_FIELDS, check_pairs
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Pair, PlainPair, Sample
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import RecordWriter, TokenStore, record_writer
from prep_assets.text.render import InlineReasoning

# Preference pairs: those of one domain, and those of all domains as ``preferences.jsonl``, shuffled, with a held-out test file.
#
# Answers with a label instead of a counterpart go to ``unpaired.jsonl``, see `UnpairedFiles`.

RAW = "preference_raw"
TRAIN, TEST = "preferences", "preferences_test"
BLOCK_BYTES, AUTO_BYTES = 4 << 20, 256 << 10
"""What is read of a source at a time: less where a row may show that all has to be written in another form."""


def pairs(store: Store) -> Verdict:
    """Pairs, and labelled answers where there are any."""
    files = ("preferences", "preferences_test", "unpaired", "unpaired_test")
    return check_pairs(*(open_lines(store.directory, name) if (store.directory / f"{name}.jsonl").is_file() else () for name in files))


SANITY = Check("pair_sanity", "One prompt, two different answers, nothing empty, no prompt in both train and test.", pairs)


def _depends_pairs(workspace: Workspace, name: str) -> dict[str, Any]:
    """What the JSONL files of a domain depend on."""
    family = workspace.family(Preference)
    return {
        **domain_recipe(workspace, family, RAW, name),
        **family.model_dump(include={"max_per_source", "test_fraction", "form"}),
        **reasoning_recipe(family),
        "deduplicate": family.preprocessing.deduplicate,
    }


def _write_pairs(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
    """Convert a domain's pairs to one schema, train and test."""
    form = workspace.family(Preference).form
    return in_one_form(form, payload, lambda form, auto: _write_pairs_in(workspace, name, payload, quarantine_path, form, auto))


def _audit_pairs(workspace: Workspace, _: str, payload: Path) -> None:
    for name in (TRAIN, TEST):
        for number, row in enumerate(open_lines(payload, name)):
            if not all(says_something(row[part]) for part in ("prompt", "chosen", "rejected")) or row["chosen"] == row["rejected"]:
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or chosen equals rejected")
    for name in (UNPAIRED, UNPAIRED_TEST) if (payload / f"{UNPAIRED}.jsonl").is_file() else ():
        for number, row in enumerate(open_lines(payload, name)):
            if not all(says_something(row[part]) for part in ("prompt", "completion")) or not isinstance(row["label"], bool):
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or no label")


def _write_pairs_in(workspace: Workspace, name: str, payload: Path, quarantine_path: Path, form: RowForm, auto: bool) -> Draft:
    family = workspace.family(Preference)
    reading = Source.of(workspace, Preference, RAW, name, gives=Pair, max_items=family.max_per_source).reading()
    untemplated = 0
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        train, test = (stack.enter_context(LinesWriter(payload, file, (name,))) for file in (TRAIN, TEST))
        unpaired = UnpairedFiles(payload, (name,), None, stack)
        for item, example, row, in_test in _rows(reading, form, auto, unrendered_reasoning(family), quarantine):
            to_test = in_test or (family.test_fraction > 0 and held_out(_digest(example), family.test_fraction))
            origin = {"source": 0, "file": item.record.file, "at": item.record.row}
            untemplated += is_untemplated(example)
            if "label" in row:
                unpaired.append(row, to_test, **origin)
            else:
                (test if to_test else train).append(row, **origin)
        kept = len(train) + len(test) + sum(unpaired.counts.values())
        books = {"kept": kept, "train": len(train), "test": len(test), **unpaired.counts, "refused": quarantine.counts}
    counts = {"read": reading.read, **books, **({UNTEMPLATED: untemplated} if untemplated else {}), **passed_over(reading)}
    return Draft(counts, {}, ("prompts and answers are not empty", "chosen differs from rejected"))


def _rows(
    reading: Reading, form: RowForm, auto: bool, reasoning: InlineReasoning, quarantine: Quarantine
) -> Iterator[tuple[Item, Given, dict[str, Any], bool]]:
    """Each item of a domain that is kept, its example, its row, and whether it is of a held-out file."""
    for items, in_test in reading.examples("pair", quarantine, block_bytes=AUTO_BYTES if auto else BLOCK_BYTES, plain=True):
        for item in items:
            try:
                given = item.given
                plain = isinstance(given, PlainPair) and reasoning.leaves((*given.prompt.texts, given.chosen, given.rejected))
                example = given if plain else reasoning.read(item.example)
                row = row_in_form(partial(preference_row, example), form, auto)
            except Refused as refusal:
                item.refuse(quarantine, refusal)
            else:
                yield item, example, row, in_test


def _digest(example: Given) -> bytes:
    """What decides whether a pair, or an answer with a label, is held out: what it replies to."""
    if isinstance(example, PlainPair):
        return chat_digest(example.prompt.roles, example.prompt.texts)
    return prompt_digest(example.prompt if isinstance(example, Pair) else example.turns[:-1] if isinstance(example, Sample) else ())


PREFERENCES_BY_DOMAIN = Asset(
    name="preferences_by_domain",
    family="preference",
    description="""Pairs of a domain as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.""",
    version=PREFERENCE_VERSION,
    depends=_depends_pairs,
    write=_write_pairs,
    audit=_audit_pairs,
    partitioned=True,
    upstream=(RAW,),
    options=(*REASONING, "max_per_source", "test_fraction", "form", "preprocessing.deduplicate"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        SANITY,
        derived("source_match", "Every pair is what its row says, prompt and answers, each on its side.", PairsMatch),
        SELECTION,
    ),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST, UNPAIRED, UNPAIRED_TEST)},
    source=FromRows(Pair, of_stores.pairs, by_prompt, plain=True),
    kind="json",
    columns=PAIR_COLUMNS,
)


PAIR_PARTS = "preferences_by_domain"


def _depends_merged_pairs(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the JSONL files depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Preference)
    return {
        "domains": {name: workspace.content(PAIR_PARTS, name) for name in sorted(family.domains)},
        **family.model_dump(include={"seed", "shuffle"}),
    }


def _merge_pairs(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the files of all domains as one each; what is trained on is shuffled."""
    family = workspace.family(Preference)
    seed = family.seed if family.shuffle else None
    parts = parts_of(workspace, PAIR_PARTS, sorted(family.domains))
    lines = merge_lines(parts, payload, {TRAIN: seed, TEST: None, UNPAIRED: seed, UNPAIRED_TEST: None})
    names = {TRAIN: "train", TEST: "test", UNPAIRED: "unpaired_train", UNPAIRED_TEST: "unpaired_test"}
    kept, read = sum(lines.values()), sum(part.manifest.counts["kept"] for part in parts.values())
    return Draft({"read": read, "kept": kept, **{names[file]: count for file, count in lines.items()}, "refused": {}}, {}, ())


PREFERENCES = Asset(
    name="preferences",
    family="preference",
    description="""Pairs of all domains as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.""",
    version=PREFERENCE_VERSION,
    depends=_depends_merged_pairs,
    write=_merge_pairs,
    upstream=(PAIR_PARTS,),
    options=("seed", "shuffle"),
    checks=(INTEGRITY, ACCOUNTING, SANITY, MERGED_LINES),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST, UNPAIRED, UNPAIRED_TEST)},
    source=FromParts((PAIR_PARTS,)),
    kind="json",
    columns=PAIR_COLUMNS,
)


# Tokenized preferences, of one domain and of all as one, in the order of ``preferences.jsonl``.
#
# Both sides of every pair are token ids with masks; pairs that are held out are in the folder ``test``.

HELD_OUT = "test"
FILES = {"": TRAIN, f"{HELD_OUT}/": TEST}
"""Folder of a pair of streams → the file whose lines they hold."""
STREAMS = {f"{folder}{side}": name for folder, name in FILES.items() for side in SIDES}
"""Stream → the file whose lines it holds."""


def _depends_tokens(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's tokenized pairs depend on."""
    family = workspace.family(Preference)
    return {
        "domain": name,
        "pairs": workspace.content(PAIR_PARTS, name),
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "truncation": family.truncation,
        "output": family.output.model_dump(include={"dtype", "max_tokens_per_shard"}),
    }


def _write_tokens(workspace: Workspace, domain: str, payload: Path, quarantine_path: Path) -> Draft:
    """Tokenize both sides of every pair through the chat template; loss on the answer and its stop token only.

    The store is always `bin`, as `sft_tokens` is.
    """
    family = workspace.family(Preference)
    directory = open_published(workspace.stores, PAIR_PARTS, domain, remedy=build_command(PAIR_PARTS, domain)).directory
    dtype, shard = ids_dtype(family, workspace.vocabulary(family)), family.output.max_tokens_per_shard
    dtypes, counts = {side: {"tokens": dtype, "loss_mask": "uint8"} for side in SIDES}, dict[str, int]()
    with Quarantine(quarantine_path) as quarantine:
        for folder, name in FILES.items():
            lines = open_lines(directory, name)
            if folder and not len(lines):
                continue
            (payload / folder).mkdir(exist_ok=True)
            with ExitStack() as stack:
                open_writer = partial(record_writer, "bin", payload / folder, max_tokens_per_shard=shard)
                writers = {side: stack.enter_context(open_writer(side, dtypes[side])) for side in SIDES}
                streams = Streams(payload, dtypes, writers, quarantine)
                found = encode_lines(workspace, family, f"tokenize pairs of {domain}", lines, partial(_encode, name=name), streams)
            add(counts, {**found, **({"kept_test": found["kept"]} if folder else {})})
        refused = quarantine.counts
    return Draft({**counts, "refused": refused}, {}, ("ids inside the vocabulary", "both sides have the same records"))


def _encode(
    workspace: Workspace, batches: Iterator[Batch], writers: Sequence[RecordWriter], quarantine: Quarantine, *, name: str
) -> dict[str, Any]:
    """Tokenize and write pairs; see `EncodeLines`.

    Args:
        name: of their file.
    """
    encoder, counts = PairEncoder(workspace), {"read": 0, "kept": 0, "tokens": 0, "trained_tokens": 0}
    for first, batch in batches:
        counts["read"] += len(batch)
        kept, sides = encoder.encode(batch, first, quarantine, name=name)
        counts["kept"] += len(kept)
        rows = [first + i for i in kept]
        for side, writer in zip(SIDES, writers, strict=True):
            ids, mask, lengths, taken = sides[side]
            writer.append({"tokens": ids, "loss_mask": mask}, lengths, [0] * len(rows), rows)
            counts["tokens"] += len(ids)
            counts["trained_tokens"] += int(mask.sum())
            if taken:
                counts["tokens_cut_away"] = counts.get("tokens_cut_away", 0) + taken
    return counts


def _audit_tokens(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    for folder in FILES:
        if folder and not (payload / folder).is_dir():
            continue
        chosen, rejected = (audit_stream(payload / folder, side, vocabulary) for side in SIDES)
        if not np.array_equal(chosen.row, rejected.row):
            raise StoreError(f"{folder}chosen and {folder}rejected do not hold the same pairs")


def _only_others(workspace: Workspace, name: str) -> bool:
    """Whether a domain's preferences are all labelled answers, so that there is no pair to tokenize."""
    pairs = workspace.published(PAIR_PARTS, name)
    counts = pairs.manifest.counts if pairs else {}
    return counts.get("kept", 0) > 0 and not counts["train"] + counts["test"]


PREFERENCE_TOKENS_BY_DOMAIN = Asset(
    name="preference_tokens_by_domain",
    family="preference",
    description="""Both sides of every pair of a domain as token ids, loss on the answer and its stop token only.

Pairs that are held out are in the folder `test`.""",
    version=PREFERENCE_VERSION,
    depends=_depends_tokens,
    write=_write_tokens,
    audit=_audit_tokens,
    partitioned=True,
    upstream=(PAIR_PARTS,),
    options=(*TEMPLATE, *REASONING, "preprocessing.max_seq_len", "truncation", "output.dtype", "output.max_tokens_per_shard"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        LINE_SELECTION,
        Check("row_integrity", "Ids are inside the vocabulary, and both sides of every pair train something.", token_rows),
        derived("mask_alignment", "Trained tokens of both sides decode to exactly the answers and their stop token.", Sides),
        derived("tokenization_identity", IDENTITY, Sides),
    ),
    preview=record_preview,
    streams={
        "pairs": Stream(Pairs, None),
        HELD_OUT: Stream(Pairs, HELD_OUT),
        **{name: Stream(TokenStore, name, masked=True) for name in STREAMS},
    },
    source=FromLines({f"{folder}chosen": (PAIR_PARTS, name) for folder, name in FILES.items()}, pair_lines, PAIR_FIELDS),
    may_be_empty=_only_others,
    columns=MASKED_TOKEN_COLUMNS,
)


MERGED_PAIRS, TOKEN_PARTS = "preferences", "preference_tokens_by_domain"
LINES = {stream: (MERGED_PAIRS, file) for stream, file in STREAMS.items()}


def _depends_merged_tokens(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the tokenized pairs depend on."""
    family = workspace.family(Preference)
    return {
        "pairs": workspace.content(MERGED_PAIRS),
        "domains": {name: workspace.content(TOKEN_PARTS, name) for name in sorted(family.domains)},
        "output": family.output.model_dump(),
    }


def _merge_tokens(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the tokens of all domains, both sides of each pair."""
    family = workspace.family(Preference)
    parts = parts_of(workspace, TOKEN_PARTS, sorted(family.domains))
    dtypes = {"tokens": ids_dtype(family, workspace.vocabulary(family)), "loss_mask": "uint8"}
    shard = family.output.max_tokens_per_shard
    for folder in _folders(workspace):
        (payload / folder).mkdir(exist_ok=True)
        for side in SIDES:
            with record_writer(family.output.storage_format, payload / folder, side, dtypes, max_tokens_per_shard=shard) as writer:
                merge_tokens(workspace, f"{folder}{side}", parts, LINES[f"{folder}{side}"], writer)
    counts: dict[str, Any] = {}
    for part in parts.values():
        add(counts, {key: value for key, value in part.manifest.counts.items() if isinstance(value, int)})
    counted = {**counts, "read": counts["kept"], "refused": {}}
    return Draft(counted, {}, ("ids inside the vocabulary", "both sides have the same records"))


def _folders(workspace: Workspace) -> list[str]:
    """Where there are pairs: the store itself, and the folder of those held out."""
    pairs = open_published(workspace.stores, MERGED_PAIRS, remedy=build_command(MERGED_PAIRS))
    return [folder for folder in FILES if not folder or pairs.manifest.counts["test"]]


def _audit_merged_tokens(workspace: Workspace, _: str, payload: Path) -> None:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    for folder in _folders(workspace):
        chosen, rejected = (audit_stream(payload / folder, side, vocabulary) for side in SIDES)
        if not np.array_equal(chosen.row, rejected.row):
            raise StoreError(f"{folder}chosen and {folder}rejected do not hold the same pairs")


def _only_unpaired(workspace: Workspace, _: str) -> bool:
    """Whether all preferences are labelled answers, so that there is no pair to tokenize."""
    pairs = workspace.published(MERGED_PAIRS)
    counts = pairs.manifest.counts if pairs else {}
    labelled = counts.get("unpaired_train", 0) + counts.get("unpaired_test", 0)
    return labelled > 0 and not counts["train"] + counts["test"]


PREFERENCE_TOKENS = Asset(
    name="preference_tokens",
    family="preference",
    description="""Both sides of every pair of all domains as token ids, loss on the answer and its stop token only.

Pairs that are held out are in the folder `test`.""",
    version=PREFERENCE_VERSION,
    depends=_depends_merged_tokens,
    write=_merge_tokens,
    audit=_audit_merged_tokens,
    upstream=(TOKEN_PARTS, by_domain(MERGED_PAIRS), MERGED_PAIRS),
    options=("output",),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check("row_integrity", "Ids are inside the vocabulary, and both sides of every pair train something.", token_rows),
        MERGED_RECORDS,
    ),
    preview=record_preview,
    streams={
        "pairs": Stream(Pairs, None),
        HELD_OUT: Stream(Pairs, HELD_OUT),
        **{name: Stream(TokenStore, name, masked=True) for name in STREAMS},
    },
    source=FromParts((TOKEN_PARTS,), LINES),
    may_be_empty=_only_unpaired,
    columns=MASKED_TOKEN_COLUMNS,
)


ASSETS = (
    PREFERENCES_BY_DOMAIN,
    PREFERENCES,
    PREFERENCE_TOKENS_BY_DOMAIN,
    PREFERENCE_TOKENS,
)
