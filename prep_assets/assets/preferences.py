"""Preferences: pairs of answers → ``preferences.jsonl`` (and a held-out test file) → token ids with masks of both sides.

Answers with a label instead of a counterpart go to ``unpaired.jsonl``, see `unpaired`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash

from prep_assets.assets.build import Build
from prep_assets.assets.commands import materialize_command
from prep_assets.assets.reading.all_refused import check_domain
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Item, check_schemas, held_out, reading_recipe
from prep_assets.assets.reading.reasoning import inline_reasoning, reasoning_recipe, unrendered_reasoning
from prep_assets.assets.reading.source import Source
from prep_assets.assets.versions import PREFERENCE as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.message_rows import RowForm, in_one_form, row_in_form, says_something
from prep_assets.assets.writing.preference_rows import pair_sample, preference_row
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.assets.writing.unpaired import UNPAIRED, UNPAIRED_TEST, UnpairedFiles
from prep_assets.config.models import Preference
from prep_assets.errors import Refused, StoreError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Pair
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import record_writer
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.reasoning import InlineReasoning
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoded, Encoder
from prep_assets.tokenization.policy import MaskPolicy

RAW = "preference_raw"
PAIRS = "preferences"
TRAIN, TEST = "preferences", "preferences_test"
SIDES = ("chosen", "rejected")
BATCH = 2048


def pairs_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the JSONL files depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Preference)
    domains = {}
    for name in sorted(family.domains):
        domain, raw = family.domains[name], workspace.published(RAW, name)
        domains[name] = {"raw": raw.manifest.content_hash if raw else None, "schema": reading_recipe(domain)}
    options = family.model_dump(include={"max_per_source", "test_fraction", "seed", "shuffle", "form"})
    return {
        "stage": PAIRS,
        "version": VERSION,
        "domains": domains,
        **options,
        **reasoning_recipe(family),
        "deduplicate": family.preprocessing.deduplicate,
    }


def pairs_build(workspace: Workspace, _: str = "") -> Build:
    """Convert every domain's pairs to one schema, train and test."""
    family = workspace.family(Preference)
    names = tuple(sorted(family.domains))

    def write(payload: Path, quarantine_path: Path) -> Draft:
        check_schemas(family, names, Pair)
        return in_one_form(family.form, payload, lambda form, auto: _write_pairs(workspace, payload, quarantine_path, form, auto))

    def audit(payload: Path) -> None:
        for name in (TRAIN, TEST):
            for number, row in enumerate(open_lines(payload, name)):
                if not all(says_something(row[part]) for part in ("prompt", "chosen", "rejected")) or row["chosen"] == row["rejected"]:
                    raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or chosen equals rejected")
        for name in (UNPAIRED, UNPAIRED_TEST) if (payload / f"{UNPAIRED}.jsonl").is_file() else ():
            for number, row in enumerate(open_lines(payload, name)):
                if not all(says_something(row[part]) for part in ("prompt", "completion")) or not isinstance(row["label"], bool):
                    raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or no label")

    return Build(workspace.place(PAIRS), pairs_recipe(workspace), pairs_recipe(workspace.plain), write, audit)


def _write_pairs(workspace: Workspace, payload: Path, quarantine_path: Path, form: RowForm, auto: bool) -> Draft:
    family = workspace.family(Preference)
    names, seed = tuple(sorted(family.domains)), family.seed if family.shuffle else None
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        train = stack.enter_context(LinesWriter(payload, TRAIN, names, shuffle_seed=seed))
        test = stack.enter_context(LinesWriter(payload, TEST, names))
        unpaired = UnpairedFiles(payload, names, seed, stack)
        readings = [Source.of(workspace, Preference, RAW, name, gives=Pair, max_items=family.max_per_source).reading() for name in names]
        for number, reading in enumerate(readings):
            before = sum(quarantine.counts.values())
            for item, row, in_test in _rows(reading, form, auto, unrendered_reasoning(family), quarantine):
                to_test = in_test or held_out(_prompt_digest(row), family.test_fraction)
                origin = {"source": number, "file": item.record.file, "at": item.record.row}
                if "label" in row:
                    unpaired.append(row, to_test, **origin)
                else:
                    (test if to_test else train).append(row, **origin)
            check_domain(reading.name, reading.read, quarantine, before)
        kept = len(train) + len(test) + sum(unpaired.counts.values())
        books = {"kept": kept, "train": len(train), "test": len(test), **unpaired.counts, "refused": quarantine.counts}
    counts = {"read": sum(reading.read for reading in readings), **books, **passed_over(*readings)}
    return Draft(counts, {}, ("prompts and answers are not empty", "chosen differs from rejected"))


def _rows(
    reading: Reading, form: RowForm, auto: bool, reasoning: InlineReasoning, quarantine: Quarantine
) -> Iterator[tuple[Item, dict[str, Any], bool]]:
    """Each item of a domain that is kept, its row, and whether it is of a held-out file."""
    for items, in_test in reading.examples("pair", quarantine):
        for item in items:
            try:
                row = row_in_form(partial(preference_row, reasoning.read(item.example)), form, auto)
            except Refused as refusal:
                item.refuse(quarantine, refusal)
            else:
                yield item, row, in_test


def _prompt_digest(row: dict[str, Any]) -> bytes:
    return xxhash.xxh3_128_digest(msgspec.json.encode(row["prompt"]))


# -- tokens -----------------------------------------------------------------------------------------------------------------------------


def tokens_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the tokenized pairs depend on."""
    family = workspace.family(Preference)
    pairs = workspace.published(PAIRS)
    return {
        "stage": "preference_tokens",
        "version": VERSION,
        "pairs": pairs.manifest.content_hash if pairs else None,
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(),
    }


def tokens_build(workspace: Workspace, _: str = "") -> Build:
    """Tokenize both sides of every training pair through the chat template; loss on the answer and its stop token only."""
    family = workspace.family(Preference)
    vocabulary = workspace.vocabulary(family)

    def write(payload: Path, quarantine_path: Path) -> Draft:
        directory = open_published(workspace.stores, PAIRS, remedy=materialize_command(PAIRS)).directory
        lines, encoder = (
            open_lines(directory, TRAIN),
            pair_encoder(workspace),
        )
        dtype, shard = ids_dtype(family, vocabulary), family.output.max_tokens_per_shard
        counts = {"read": 0, "kept": 0, "tokens": 0, "trained_tokens": 0}
        with ExitStack() as stack:
            quarantine = stack.enter_context(Quarantine(quarantine_path))
            dtypes = {side: {"tokens": dtype, "loss_mask": "uint8"} for side in SIDES}
            writers = {
                side: stack.enter_context(
                    record_writer(family.output.storage_format, payload, side, dtypes[side], max_tokens_per_shard=shard)
                )
                for side in SIDES
            }
            for first, batch in _batches(lines):
                counts["read"] += len(batch)
                kept, sides = encode_pairs(workspace, batch, first, encoder, quarantine)
                counts["kept"] += len(kept)
                for side in SIDES:
                    ids, mask, lengths = sides[side]
                    rows = [first + i for i in kept]
                    writers[side].append({"tokens": ids, "loss_mask": mask}, lengths, [0] * len(rows), rows)
                    counts["tokens"] += len(ids)
                    counts["trained_tokens"] += int(mask.sum())
                workspace.progress("tokenize pairs", counts["read"], len(lines))
            refused = quarantine.counts
        return Draft({**counts, "refused": refused}, {}, ("ids inside the vocabulary", "both sides have the same records"))

    def audit(payload: Path) -> None:
        chosen, rejected = (audit_stream(payload, side, vocabulary) for side in SIDES)
        if not np.array_equal(chosen.row, rejected.row):
            raise StoreError("chosen and rejected do not hold the same pairs")

    recipe, plain = tokens_recipe(workspace), tokens_recipe(workspace.plain)
    return Build(workspace.place("preference_tokens"), recipe, plain, write, audit, needs_records=not _only_unpaired(workspace))


def _only_unpaired(workspace: Workspace) -> bool:
    """Whether all preferences are labelled answers, so that there is no pair to tokenize."""
    pairs = workspace.published(PAIRS)
    counts = pairs.manifest.counts if pairs else {}
    labelled = counts.get("unpaired_train", 0) + counts.get("unpaired_test", 0)
    return labelled > 0 and not counts["train"] + counts["test"]


def pair_encoder(workspace: Workspace) -> Encoder:
    """What tokenizes the sides of pairs."""
    family = workspace.family(Preference)
    return Encoder(workspace.vocabulary(family), workspace.engines(family), answer_policy(), family.preprocessing.max_seq_len)


def answer_policy() -> MaskPolicy:
    """Loss on a region that says so itself, on nothing else: the answers carry weight 1, the prompt weight 0."""
    return MaskPolicy({}, "mask")


def _batches(lines: Lines) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    batch: list[dict[str, Any]] = []
    first = 0
    for row in lines:
        batch.append(row)
        if len(batch) == BATCH:
            yield first, batch
            first, batch = first + len(batch), []
    if batch:
        yield first, batch


def encode_pairs(
    workspace: Workspace, batch: list[dict[str, Any]], first: int, encoder: Encoder, quarantine: Quarantine
) -> tuple[list[int], dict[str, tuple[Any, Any, Any]]]:
    """Pairs of which both sides are kept, and the arrays of each side."""
    template, reasoning = workspace.template(workspace.family(Preference)), inline_reasoning(workspace, workspace.family(Preference))
    refused: dict[int, Refused] = {}
    rendered: dict[int, tuple[Rendered, ...]] = {}
    for i, row in enumerate(batch):
        try:
            rendered[i] = rendered_pair(row, template, reasoning)
        except Refused as refusal:
            refused[i] = refusal
    encoded: dict[str, tuple[list[int], Encoded]] = {}
    for number, side in enumerate(SIDES):
        at = list(rendered)
        result = encoder.encode([rendered[i][number] for i in at])
        for position, why in result.refused:
            refused.setdefault(at[position], why)
        encoded[side] = ([at[int(position)] for position in result.kept], result)
    for i, why in sorted(refused.items()):
        quarantine.add(f"{TRAIN}.jsonl:{first + i}", why.stage, why.reason, why.detail, batch[i])
    kept = [i for i in range(len(batch)) if i not in refused]
    return kept, {side: _chosen(*encoded[side], refused) for side in SIDES}


def rendered_pair(row: dict[str, Any], template: ChatTemplate, reasoning: InlineReasoning) -> tuple[Rendered, ...]:
    """Both sides. A template that trims can make one text of two answers, and such a pair teaches nothing."""
    sides = tuple(render(reasoning.read(pair_sample(row, side)), template) for side in SIDES)
    if sides[0].text == sides[1].text:
        raise Refused("equal_answers", "the chat template renders both answers to the same text", stage="render")
    return sides


def _chosen(at: list[int], encoded: Encoded, refused: dict[int, Refused]) -> tuple[Any, Any, Any]:
    keep = np.array([i not in refused for i in at], bool)
    lengths = np.diff(encoded.offsets)
    tokens = np.repeat(keep, lengths)
    return encoded.ids[tokens], (encoded.loss[tokens] != 0).astype(np.uint8), lengths[keep]
