"""Preferences: pairs of answers → ``preferences.jsonl``, and a held-out test file.

Answers with a label instead of a counterpart go to ``unpaired.jsonl``, see `unpaired`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from prep_assets.assets.checks import alone
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.preferences import pairs
from prep_assets.assets.checks.selection import SELECTION, by_fields
from prep_assets.assets.checks.source_match import matched_pairs, source_match
from prep_assets.assets.columns import PAIRS as COLUMNS
from prep_assets.assets.options import REASONING
from prep_assets.assets.previews.lines import line_preview
from prep_assets.assets.reading.all_refused import check_domain
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Item, check_schemas, domains_recipe, held_out
from prep_assets.assets.reading.reasoning import reasoning_recipe, unrendered_reasoning
from prep_assets.assets.reading.source import Source
from prep_assets.assets.selftest.lines import pair_trials
from prep_assets.assets.stage import Asset, Check, FromRows, Stream
from prep_assets.assets.versions import PREFERENCE as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.message_rows import RowForm, in_one_form, row_in_form, says_something
from prep_assets.assets.writing.preference_rows import preference_row
from prep_assets.assets.writing.unpaired import UNPAIRED, UNPAIRED_TEST, UnpairedFiles
from prep_assets.config.models import Preference
from prep_assets.errors import Refused, StoreError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Pair
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Draft
from prep_assets.templates.reasoning import InlineReasoning

RAW = "preference_raw"
TRAIN, TEST = "preferences", "preferences_test"


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the JSONL files depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Preference)
    return {
        "domains": domains_recipe(workspace, family, RAW, sorted(family.domains)),
        **family.model_dump(include={"max_per_source", "test_fraction", "seed", "shuffle", "form"}),
        **reasoning_recipe(family),
        "deduplicate": family.preprocessing.deduplicate,
    }


def _write(workspace: Workspace, _: str, payload: Path, quarantine_path: Path) -> Draft:
    """Convert every domain's pairs to one schema, train and test."""
    family = workspace.family(Preference)
    check_schemas(family, sorted(family.domains), Pair)
    return in_one_form(family.form, payload, lambda form, auto: _write_pairs(workspace, payload, quarantine_path, form, auto))


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    for name in (TRAIN, TEST):
        for number, row in enumerate(open_lines(payload, name)):
            if not all(says_something(row[part]) for part in ("prompt", "chosen", "rejected")) or row["chosen"] == row["rejected"]:
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or chosen equals rejected")
    for name in (UNPAIRED, UNPAIRED_TEST) if (payload / f"{UNPAIRED}.jsonl").is_file() else ():
        for number, row in enumerate(open_lines(payload, name)):
            if not all(says_something(row[part]) for part in ("prompt", "completion")) or not isinstance(row["label"], bool):
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or no label")


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


ASSET = Asset(
    name="preferences",
    family="preference",
    description="""Pairs of all domains as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.""",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    upstream=(RAW,),
    options=(*REASONING, "domains", "max_per_source", "test_fraction", "seed", "shuffle", "form", "preprocessing.deduplicate"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        Check("pair_sanity", "One prompt, two different answers, nothing empty, no prompt in both train and test.", pairs),
        Check(
            "source_match",
            "Every pair is what its row says, prompt and answers, each on its side.",
            partial(source_match, matched_pairs),
        ),
    ),
    preview=line_preview,
    selftest=pair_trials,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST, UNPAIRED, UNPAIRED_TEST)},
    source=FromRows(Pair, alone.pairs, by_fields),
    kind="json",
    columns=COLUMNS,
)
