"""Checks of verdicts: nothing that blocks was found, and a second judgement says the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from prep_assets.checks.relations import same_rows
from prep_assets.data.quarantine import renumbered
from prep_assets.extensions.quality.examined import source_to_judge
from prep_assets.extensions.quality.judging import MOST_SHARES, Verdicts, judged_domain
from prep_assets.extensions.quality.proofs.known_answers import KNOWN_ANSWERS
from prep_assets.extensions.quality.proofs.known_verdicts import DEFAULTS, KNOWN
from prep_assets.extensions.quality.steps import Configured, Examples, Judged, by_block, corrupted_examples, quality_steps
from prep_assets.pipeline.asset import Check, Store
from prep_assets.pipeline.verdicts import read_verdicts
from prep_assets.proofs.verdict import Verdict, Worst, wrong_claim
from prep_assets.samples import document
from prep_assets.stores.guards import Guards, load_array


def _not_blocked(store: Store) -> Verdict:
    counts = store.manifest.counts
    numbers = {"examples": counts["examples"], "dropped": counts["dropped"], **counts["found"]}
    if blocking := counts.get("blocking"):
        reason, first = next(iter(blocking.items()))
        record, _, found = first.partition(": ")  # the record as in files, counted from 0
        record = renumbered(record, 1)
        detail = f"{', '.join(blocking)} must not be found, and was; first {record}: {found}"
        remedy = f"See all: prep-assets quarantine {store.asset.name}. Mend the source, or set the step's action to drop"
        return Verdict(False, f"{detail}. {remedy}", numbers, Worst(record, reason))
    return Verdict(True, f"{counts['examples']:,} examples, {counts['dropped']:,} of them dropped, none that blocks", numbers)


def _judged_again(store: Store) -> Verdict:
    """Judge examples whose verdicts are known, then the domain once more, and compare row by row."""
    for name, _ in store.recipe["steps"]:
        if fault := known_fault(name):
            return Verdict(False, fault, {}, Worst(name, fault))
    if fault := numbering_fault():
        return Verdict(False, fault, {}, Worst("numbers", fault))
    source = source_to_judge(store.workspace, store.asset.family, store.partition)
    with TemporaryDirectory() as folder:
        again = judged_domain(source, Path(folder) / "again" / "payload", halved=True)
    for name, values in again.left().items():
        if not np.array_equal(load_array(store.directory / name, Guards()), values):
            detail = f"{name} is not what the steps leave for later domains when they judge again"
            return Verdict(False, detail, {"rows_compared": again.count}, Worst(name, detail))
    table = read_verdicts(store.published)
    if fault := _counts_fault(store, table):
        return Verdict(False, fault, {"rows_compared": table.num_rows}, Worst("counts", fault))
    verdict, own = same_rows(table, again.table()), [name for name, _ in store.recipe["steps"] if ":" in name]
    if verdict.passed or not own:
        return verdict
    return replace(verdict, summary=f"{verdict.summary}. {', '.join(own)} must judge each example alone, and always say the same")


def _counts_fault(store: Store, table: Any) -> str:
    """Return how a table of verdicts differs from what its manifest and the raw asset count; ``""`` if it does not."""
    counts, rows = store.manifest.counts, store.workspace.built(store.raw, store.partition).manifest.counts["kept"]
    if rows and not table.num_rows:
        return f"no example is judged, and the source has {rows:,} rows. If its schema rejects them all, `prep-assets sniff FILE` says why"
    dropped = Counter(filter(None, table["dropped"].to_pylist()))
    shares = {f"dropped.{reason}": count / max(1, table.num_rows) for reason, count in dropped.items()}
    for note in (each for each in table.column_names if "." in each and str(table[each].type) == "string"):
        texts = Counter(table[note].to_pylist())
        shares |= {f"{note}.{text}": count / table.num_rows for text, count in texts.items() if len(texts) <= MOST_SHARES}
    must = {"examples": table.num_rows, "dropped": dropped.total(), "kept": table.num_rows - dropped.total()}
    if fault := wrong_claim(must, counts) or wrong_claim(shares, store.manifest.metrics):
        return fault
    if extra := store.manifest.metrics.keys() - shares.keys():
        return f"the manifest has metrics that nothing gives: {', '.join(sorted(extra))}"
    actions = {name: options.get("action", "drop") for name, options in store.family.quality.steps.items()}
    for found in counts["found"]:
        step, action = found.partition("/")[0], found.rpartition(" (")[2].removesuffix(")")
        # a step that notes what is alike drops one of two on two sides of a split
        if actions.get(step, "") not in (action, "note" if action == "drop" else action):
            return f"it counts {found!r}, and the configuration has {', '.join(f'{name}: {does}' for name, does in actions.items())}"
    return ""


def known_fault(name: str) -> str:
    """Return what a step says wrongly of examples whose verdicts are known, judged in two blocks; ``""`` where nothing is wrong, or none are known."""
    if name in DEFAULTS and (defaults := quality_steps()[name].defaults) != DEFAULTS[name]:
        return f"{name} has the defaults {defaults}, and must have {DEFAULTS[name]}"
    for known in (KNOWN | KNOWN_ANSWERS).get(name, tuple)():
        verdicts = Verdicts([Configured(name, "drop", partial(quality_steps()[name].factory, **known.options), {})])
        verdicts.learn(known.golds)
        examples = corrupted_examples(known.examples)
        for block in examples.halves or [examples]:
            verdicts.add(verdicts.judged(block))
        verdicts.finish()
        found = {at: f"{reason}: {detail}" for at, (reason, detail) in sorted(verdicts.dropped.items())}
        notes = {note: verdicts.notes[f"{name}.{note}"] for note in known.notes}
        if found.keys() != known.found.keys() or any(
            not found[at].startswith(why if ":" in why else f"{why}:") for at, why in known.found.items()
        ):
            must = f"in examples in which it must find {known.found or 'nothing'}: {examples.texts!r:.300}"
            return f"{name} finds {found or 'nothing'} {must}"
        if notes != known.notes:
            return f"{name} notes {notes}, and must note {known.notes}"
    return ""


def numbering_fault() -> str:
    """Return which examples get the verdicts of others; ``""`` where none does. A step that finds all but the first of each block is asked."""

    def step(examples: Examples) -> Judged:
        return Judged({at: ("number", text) for at, text in enumerate(examples.texts) if at})

    for action in ("drop", "note"):
        verdicts = Verdicts([Configured("number", action, lambda: by_block(step), {})])
        for block in ((0, 1), (2, 3, 4)):
            verdicts.add(verdicts.judged(corrupted_examples([document(str(number)) for number in block])))
        verdicts.finish()
        found = {at: detail for at, (_, detail) in verdicts.dropped.items()} | {at: detail for at, (detail,) in verdicts.noted.items()}
        if {at: [word for word in detail.split() if word.isdigit()] for at, detail in found.items()} != {at: [str(at)] for at in (1, 3, 4)}:
            return f"a step that finds the examples 1, 3 and 4 of a domain gives it the verdicts {found}"
    return ""


NOT_BLOCKED = Check("not_blocked", "No step whose action is block found anything.", _not_blocked)
VERDICTS_AGAIN = Check("verdicts_again", "The sources, read and judged again, give the same verdict for every example.", _judged_again)
