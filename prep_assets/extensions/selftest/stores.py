"""Selftest: corrupts copies of the user's own rows, one mutation at a time, and sees which check notices.

The store itself is only read. Rows are taken from its beginning; each mutation is done to several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from prep_assets.checks.of_conversations import conversations_of
from prep_assets.checks.of_stores import ACCOUNTING, stored_texts
from prep_assets.checks.of_texts import SOURCE_TEXTS, SourceTexts
from prep_assets.checks.relations import results_of_rows
from prep_assets.checks.selection import Selection
from prep_assets.errors import ConfigError
from prep_assets.extensions.selftest.mutations import SELECTION_MUTATIONS, TEXT_MUTATIONS, StoredRows
from prep_assets.extensions.selftest.tables import merged_trials, packed_trials
from prep_assets.extensions.selftest.trials import (
    ROWS,
    Trial,
    blend_trials,
    chosen,
    clean,
    document_trials,
    group_trials,
    masked_trials,
    prompt_token_trials,
    sft_trials,
    trials_of,
    tried,
)
from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline.asset import Corruptions, FromLines, FromParts, FromRows, Store
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.plugins import entries, of_extension, part_of
from prep_assets.proofs.accounting import COUNTED, Refusals, Stored, places
from prep_assets.proofs.selection import GOOD, Selected, select
from prep_assets.proofs.verdict import Verdict, combined
from prep_assets.stores.version_folders import Published


def verdict_trials(store: Store) -> list[Trial]:
    """Judge the rows again, and have what judged them try itself."""
    again = next(check for check in store.asset.checks if check.name.endswith("_again"))
    trials = part_of(entries("verdicts")[store.asset.stage], "tried")(store)
    return [
        clean({"leaks": "the stored leaks"}.get(store.asset.stage, "the stored verdicts"), [again.run(store)]),
        *(Trial(what, by, 1, int(found), said) for what, by, found, said in trials),
    ]


def redaction_trials(store: Store) -> list[Trial]:
    """Put a private value of each kind that its domain replaces back into the first text of a store."""
    of_domain = store.partition and isinstance(store.asset.source, FromRows | FromLines)
    kinds = domain_of(store.family, store.partition).redact if of_domain else ()
    first = next(stored_texts(store), None) if kinds else None
    if first is None:
        return []
    name, text = first
    holds, invented = of_extension("redaction", "holds"), of_extension("redaction", "invented")
    trials = [clean("the first text", [holds([first], kinds)])]
    return trials + [tried(f"{kind} is put back", ACCOUNTING.name, [holds([(name, f"{text} {invented[kind]}")], kinds)]) for kind in kinds]


TRIALS: Mapping[str, Callable[[Store], list[Trial]]] = {
    "pretrain_tokens": document_trials,
    "sft_tokens": sft_trials,
    "sft_packed": packed_trials,
    "rl_tokens_by_domain": prompt_token_trials,
    "arithmetic_tokens": prompt_token_trials,
    "rl_groups_by_domain": group_trials,
}
"""What is done to the rows of assets that do not say it themselves."""
OF_STAGES: Mapping[str, Callable[[Store], list[Trial]]] = {"blend": blend_trials, **dict.fromkeys(entries("verdicts"), verdict_trials)}
"""What is done to those of all families that judge or order rows."""
TESTED = tuple(name for name, asset in EVERY.items() if asset.streams or asset.stage in OF_STAGES)


def selftest(workspace: Workspace, published: Published) -> list[Trial]:
    """Try every mutation that fits the store.

    Raises:
        ConfigError: a store that holds neither tokens nor lines.
    """
    store = store_of(workspace, published)
    if store.asset.name not in TESTED:
        raise ConfigError(f"{store.asset.name} holds neither tokens, lines nor verdicts; selftest is for {', '.join(TESTED)}")
    tried = [*_own_trials(store), *selection_trials(store), *text_trials(store), *redaction_trials(store)]
    return tried + [
        trial for check in store.asset.checks if check.corruptions for trial in corrupted(store, check.corruptions, what=check.name)
    ]


def _own_trials(store: Store) -> list[Trial]:
    """Corruptions of what a store holds."""
    named = TRIALS.get(store.asset.name) or OF_STAGES.get(store.asset.stage)
    if isinstance(store.asset.source, FromParts):
        return (named or merged_trials)(store)
    chats = None if named else conversations_of(store)
    found = named(store) if named else [] if chats is None else masked_trials(chats)
    return found + [trial for each in store.asset.corruptions for trial in corrupted(store, each)]


def corrupted(store: Store, tried: Corruptions, *, what: str = "") -> list[Trial]:
    """Corruptions of the first rows, or of the first of each stream."""
    listed = tried.rows(store) if tried.by_stream else [tried.rows(store)]
    label = what or ("every check" if len(tried.judges) > 1 else next(iter(tried.judges)))
    first = [list(islice(rows, ROWS)) for rows in listed]
    return [trial for rows in first for trial in trials_of(rows, len(rows), tried.mutations, tried.judges, what=label)]


def selection_trials(store: Store) -> list[Trial]:
    """Corruptions of what the store holds of the first rows of its domain."""
    if not isinstance(store.asset.source, FromRows) or (held := _stored_rows(selection := Selection(store))) is None:
        return []

    def check(stored_rows: StoredRows) -> Verdict:
        refusals = Refusals(
            ((f"{stored_rows.names[stored_rows.file]}:{row + 1}", why) for row, why in stored_rows.refused), stored_rows.names
        )
        rows, sides, belongs = (np.array([entry[column] for entry in stored_rows.stored]) for column in range(3))
        stored = Stored.of(places(stored_rows.file, rows), sides.astype(bool), belongs.astype(np.int8))
        ledger = replace(selection.ledger, refusals=refusals, stored=stored, seen=None, numbers=dict.fromkeys(COUNTED, 0))
        ledger.add(stored_rows.block)
        return ledger.verdict()

    trials = [clean("selection of the first rows", [check(held)])]
    for mutation in SELECTION_MUTATIONS:
        corrupted = [changed for at in range(len(held.stored)) if (changed := mutation.change(held, at)) is not None]
        trials.append(tried(mutation.name, mutation.caught_by, [check(corrupted[at]) for at in chosen(len(corrupted))]))
    return trials


def text_trials(store: Store) -> list[Trial]:
    """Corruptions of what the first stored rows of a domain say. Not of rows of a user's schema, and not where truncation may leave a part of a row."""
    if SOURCE_TEXTS not in store.asset.checks or not isinstance(store.asset.source, FromRows):
        return []
    if (held := _stored_rows(Selection(store))) is None:
        return []
    proof = SourceTexts(store, every=True)
    if not proof.reading.known or proof.truncation.mode != "drop" or store.recipe.get("expand") == "turns":
        return []

    def check(rows: Sequence[Mapping[str, Any]]) -> Verdict:
        return combined(results_of_rows(proof, [replace(held.block, payloads=rows)]))

    rows = [payload for payload in held.block.payloads if payload is not None]
    return trials_of(rows, len(rows), TEXT_MUTATIONS, {SOURCE_TEXTS.name: check}, proof.reading.texts, what="texts of the first rows")


def _stored_rows(selection: Selection) -> StoredRows | None:
    """The first rows of a domain that are stored, and what is stored of them."""
    stored, block = selection.ledger.stored, next(select(selection.origin.rows(), selection.rules), None)
    if block is None:
        return None
    record = {place: at for at, place in enumerate(stored.place.tolist())}
    place, file = places(block.files, block.rows).tolist(), block.files[0]
    chosen_places = [at for at, fate in enumerate(block.fates) if fate == GOOD and block.files[at] == file and place[at] in record][:ROWS]
    rows, records = [block.rows[at] for at in chosen_places], [record[place[at]] for at in chosen_places]
    entries = tuple((row, bool(stored.held_out[at]), int(stored.belongs[at])) for row, at in zip(rows, records, strict=True))
    selected = Selected([file] * len(rows), rows, [GOOD] * len(rows), [block.payloads[at] for at in chosen_places])
    return StoredRows(selection.origin.names, selected, entries, ()) if chosen_places else None
