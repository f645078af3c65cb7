"""Preference pairs: those of one domain, and those of all domains as ``preferences.jsonl``, shuffled, with a held-out test file.

Answers with a label instead of a counterpart go to ``unpaired.jsonl``, see `UnpairedFiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from prep_assets.assets.checks import alone
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.merged import MERGED_LINES
from prep_assets.assets.checks.sides import by_prompt
from prep_assets.assets.checks.source_match import PairsMatch
from prep_assets.assets.checks.verification import SELECTION, derived
from prep_assets.assets.columns import PAIRS as COLUMNS
from prep_assets.assets.options import REASONING
from prep_assets.assets.previews import line_preview
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Given, Item, domain_recipe, held_out
from prep_assets.assets.reading.reasoning import reasoning_recipe, unrendered_reasoning
from prep_assets.assets.reading.source import Source
from prep_assets.assets.stage import Asset, Check, FromParts, FromRows, Store, Stream
from prep_assets.assets.versions import PREFERENCE as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.merging import merge_lines, parts_of
from prep_assets.assets.writing.message_rows import UNTEMPLATED, RowForm, in_one_form, is_untemplated, row_in_form, says_something
from prep_assets.assets.writing.preference_rows import UNPAIRED, UNPAIRED_TEST, UnpairedFiles, preference_row
from prep_assets.assets.writing.prompts import chat_digest, prompt_digest
from prep_assets.config.models import Preference
from prep_assets.errors import Refused, StoreError
from prep_assets.proofs.pairs import check_pairs
from prep_assets.proofs.verdict import Verdict
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Pair, PlainPair, Sample
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Draft
from prep_assets.templates.reasoning import InlineReasoning

RAW = "preference_raw"
TRAIN, TEST = "preferences", "preferences_test"
BLOCK_BYTES, AUTO_BYTES = 4 << 20, 256 << 10
"""What is read of a source at a time: less where a row may show that all has to be written in another form."""


def pairs(store: Store) -> Verdict:
    """Pairs, and labelled answers where there are any."""
    files = ("preferences", "preferences_test", "unpaired", "unpaired_test")
    return check_pairs(*(open_lines(store.directory, name) if (store.directory / f"{name}.jsonl").is_file() else () for name in files))


SANITY = Check("pair_sanity", "One prompt, two different answers, nothing empty, no prompt in both train and test.", pairs)


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What the JSONL files of a domain depend on."""
    family = workspace.family(Preference)
    return {
        **domain_recipe(workspace, family, RAW, name),
        **family.model_dump(include={"max_per_source", "test_fraction", "form"}),
        **reasoning_recipe(family),
        "deduplicate": family.preprocessing.deduplicate,
    }


def _write(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
    """Convert a domain's pairs to one schema, train and test."""
    form = workspace.family(Preference).form
    return in_one_form(form, payload, lambda form, auto: _write_pairs(workspace, name, payload, quarantine_path, form, auto))


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    for name in (TRAIN, TEST):
        for number, row in enumerate(open_lines(payload, name)):
            if not all(says_something(row[part]) for part in ("prompt", "chosen", "rejected")) or row["chosen"] == row["rejected"]:
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or chosen equals rejected")
    for name in (UNPAIRED, UNPAIRED_TEST) if (payload / f"{UNPAIRED}.jsonl").is_file() else ():
        for number, row in enumerate(open_lines(payload, name)):
            if not all(says_something(row[part]) for part in ("prompt", "completion")) or not isinstance(row["label"], bool):
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty part, or no label")


def _write_pairs(workspace: Workspace, name: str, payload: Path, quarantine_path: Path, form: RowForm, auto: bool) -> Draft:
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


BY_DOMAIN = Asset(
    name="preferences_by_domain",
    family="preference",
    description="""Pairs of a domain as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.""",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(RAW,),
    options=(*REASONING, "max_per_source", "test_fraction", "form", "preprocessing.deduplicate"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        SANITY,
        derived("source_match", "Every pair is what its row says, prompt and answers, each on its side."),
        SELECTION,
    ),
    derivations=(PairsMatch,),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST, UNPAIRED, UNPAIRED_TEST)},
    source=FromRows(Pair, alone.pairs, by_prompt(Pair), plain=True),
    kind="json",
    columns=COLUMNS,
)


PARTS = "preferences_by_domain"


def _depends_on_parts(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the JSONL files depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Preference)
    return {
        "domains": {name: workspace.content(PARTS, name) for name in sorted(family.domains)},
        **family.model_dump(include={"seed", "shuffle"}),
    }


def _merge(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the files of all domains as one each; what is trained on is shuffled."""
    family = workspace.family(Preference)
    seed = family.seed if family.shuffle else None
    parts = parts_of(workspace, PARTS, sorted(family.domains))
    lines = merge_lines(parts, payload, {TRAIN: seed, TEST: None, UNPAIRED: seed, UNPAIRED_TEST: None})
    names = {TRAIN: "train", TEST: "test", UNPAIRED: "unpaired_train", UNPAIRED_TEST: "unpaired_test"}
    kept, read = sum(lines.values()), sum(part.manifest.counts["kept"] for part in parts.values())
    return Draft({"read": read, "kept": kept, **{names[file]: count for file, count in lines.items()}, "refused": {}}, {}, ())


MERGED = Asset(
    name="preferences",
    family="preference",
    description="""Pairs of all domains as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.""",
    version=VERSION,
    depends=_depends_on_parts,
    write=_merge,
    upstream=(PARTS,),
    options=("seed", "shuffle"),
    checks=(INTEGRITY, ACCOUNTING, SANITY, MERGED_LINES),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST, UNPAIRED, UNPAIRED_TEST)},
    source=FromParts((PARTS,)),
    kind="json",
    columns=COLUMNS,
)
