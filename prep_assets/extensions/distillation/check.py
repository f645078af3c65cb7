"""The check of a teacher's entries, and the corruptions that it must catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from prep_assets.checks.relations import relation
from prep_assets.checks.sources_again import StoredRows, domain_source, stored_rows, streams_of
from prep_assets.errors import StoreError
from prep_assets.extensions.distillation import NAME, SCHEMA
from prep_assets.extensions.distillation.proofs.entries import Taught, check_teacher, entries_of_tokens, rejected_again
from prep_assets.pipeline.asset import Corruptions, Store
from prep_assets.proofs.mutations import Change, Mutation
from prep_assets.proofs.verdict import Tally
from prep_assets.samples import Row
from prep_assets.stores.table import Table

TAUGHT = "Entries of a teacher are those of their rows, read again, at the same tokens, as float16; more tokens are among their own than a neighbour's."


def taught(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[Taught]] | None:
    """Return what gives each record with what a teacher says of its tokens, and what its row says; `None` where neither says anything.

    Raises:
        StoreError: the stream has entries and its rows have none, or the other way round.
    """
    domain, ids, lists = domain_source(store).domain, stream.columns["tokens"], stream.lists.get(NAME)
    if (domain.schema_name == SCHEMA) != (lists is not None) and len(stream):
        has = "no" if lists is None else "the"
        raise StoreError(f"{stream.name} has {has} entries of a teacher, and is read with schema {domain.schema_name}")

    def pairs(rows: StoredRows) -> Iterator[Taught]:
        if lists is None:
            return
        for number, identity, payload in rows.records():
            part = lists.read(slice(number, number + 1), ids.spans(number)[0])
            again = entries_of_tokens(payload, domain.options, stream.record(number, "loss_mask").tolist())
            yield Taught(identity, stream.record(number, "tokens"), part.counts, part.values["id"], part.values["logprob"], again)

    return pairs


def rejections_of(store: Store) -> Callable[[str, Row], str | None]:
    """Return what derives again why a row with ids of its own is rejected for its entries."""
    options, limit = domain_source(store).domain.options, store.recipe["preprocessing"]["max_seq_len"]
    return lambda reason, row: rejected_again(reason, row, options, limit)


def _mutate_alone(change: Callable[[Taught], Taught]) -> Change:
    """Return the mutated record alone, where anything changes."""

    def changed(records: Sequence[Taught], at: int) -> list[Taught] | None:
        stored, mutated = records[at], change(records[at])
        names = ("counts", "ids", "logprobs")
        return None if all(np.array_equal(getattr(stored, name), getattr(mutated, name)) for name in names) else [mutated]

    return changed


def _entries(key: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Change:
    """Mutate one array of entries of a record."""

    def changed(record: Taught) -> Taught:
        fields: dict[str, Any] = {key: change(getattr(record, key)).astype(getattr(record, key).dtype)}
        return replace(record, **fields)

    return _mutate_alone(changed)


def _last_entry_lost(record: Taught) -> Taught:
    counts = record.counts.copy()
    counts[np.flatnonzero(counts)[-1]] -= 1
    return replace(record, counts=counts, ids=record.ids[:-1], logprobs=record.logprobs[:-1])


def _source_shifted(record: Taught) -> Taught:
    """Entries one token before their own, where the second reading has them as well: only the tokens themselves tell."""
    shifted, first = [*record.source[1:], ()], len(record.source[0])
    counts = np.array([len(entries) for entries in shifted])
    return replace(record, counts=counts, ids=record.ids[first:], logprobs=record.logprobs[first:], source=shifted)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("entries of a teacher one token later", NAME, _entries("counts", lambda counts: np.roll(counts, 1))),
    Mutation("entries of a teacher one token before, in the row as well", NAME, _mutate_alone(_source_shifted)),
    Mutation("ids of a teacher in another order", NAME, _entries("ids", lambda ids: ids[::-1])),
    Mutation("an entry of a teacher lost", NAME, _mutate_alone(_last_entry_lost)),
    Mutation("log-probabilities of a teacher as probabilities", NAME, _entries("logprobs", np.exp)),
    Mutation("log-probabilities of a teacher with 8 bits", NAME, _entries("logprobs", lambda values: (values * 16).round() / 16)),
)
TRIED = 8
"""Records of each stream that are corrupted."""


def _first(store: Store) -> Iterator[Taught]:
    for stream in streams_of(store):
        if (pairs := taught(store, stream)) is not None:
            yield from islice((pair for rows in stored_rows(store, stream) for pair in pairs(rows)), TRIED)


CHECK = structs.replace(
    relation(NAME, TAUGHT, (taught, lambda store: Tally(check_teacher))),
    corruptions=Corruptions(_first, MUTATIONS, {NAME: check_teacher}),
)
