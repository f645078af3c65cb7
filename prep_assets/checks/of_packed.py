"""Checks of packed tables against the streams that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.counts import nonzero
from prep_assets.checks.of_stores import ids_type, require_full_shards
from prep_assets.checks.sources_again import files_of
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.media import record_files
from prep_assets.proofs.accounting import unknown_counts
from prep_assets.proofs.orders import Trained
from prep_assets.proofs.packed import check_mixture
from prep_assets.proofs.tables import check_pieces, check_positions, check_rows
from prep_assets.proofs.verdict import Verdict, Worst, combined, wrong_claim
from prep_assets.stores.lists import list_entries
from prep_assets.stores.table import POSITIONS, Pieces, Table, open_stream


def of_each_table(check: Callable[[Store, Table], Iterable[Verdict]]) -> Callable[[Store], Verdict]:
    """A check of a store: the verdicts of `check` on each of its tables, combined."""
    return lambda store: combined(chain.from_iterable(check(store, table) for table in store.streams().values()))


def _pieces(table: Table) -> Pieces:
    assert table.pieces is not None
    return table.pieces


@of_each_table
def packed_rows(store: Store, table: Table) -> Iterator[Verdict]:
    """Check rows, their position ids, which the format bin stores, and their images."""
    vocabulary = store.vocabulary
    fractions = any(tokens.columns["loss_mask"].values.dtype.kind == "f" for tokens in _domains(store, table.name).values())
    types = ids_type(store) | {"loss_mask": "float32" if fractions else "int8"}
    yield check_rows(table, vocabulary_size=vocabulary.size, pad_id=vocabulary.pad_id, types=types)
    if (store.directory / table.name).is_dir():
        require_full_shards(store, store.directory / table.name, np.full(len(table), table.width))
        yield check_positions(table.columns[POSITIONS].values, table)
    yield from files_of(store).verdicts([table])


@of_each_table
def packed_mixture(store: Store, table: Table) -> Iterator[Verdict]:
    """Check which records are in the rows, and what is left out."""
    yield mixture_of(store, table.name, _pieces(table).fields, table.align)


def mixture_of(store: Store, name: str, documents: Mapping[str, npt.NDArray[Any]], align: int) -> Verdict:
    """Check the mixture of one table, from its pieces and its alignment."""
    packing, sources, tables = store.recipe["packing"], _pieces(store.streams()[name]).domains, _domains(store, name)
    options = packing if name == "sft_packed" else {**packing, "weights": None, "epochs": None, "max_items": None}
    lengths = {domain: table.lengths for domain, table in tables.items()}
    return check_mixture(documents, sources, lengths, options, _trained(list(tables.values())), _claimed(store, name), align)


_PROVEN_BY_MIXTURE = (
    "records",
    "tokens_left_out",
    "tokens_in_untrained_rows",
    "fill_rate",
    "places_for_alignment",
    "work_evenness",
    "images_left_out",
)
"""Counts and metrics beside shares. Images that are left out are in no row: `mask_alignment` compares those that are."""


def _claimed(store: Store, name: str) -> dict[str, float]:
    """Return the counts and metrics of one table in the manifest; those of the other begin with ``dev_``."""
    both, others = {**store.manifest.counts, **store.manifest.metrics}, "sft_dev_packed" in store.streams()
    if name == "sft_packed":
        return {key: number for key, number in both.items() if not (others and key.startswith("dev_"))}
    return {key.removeprefix("dev_"): number for key, number in both.items() if key.startswith("dev_")}


def _trained(tables: Sequence[Table]) -> Trained:
    def trained(source: int, record: int, start: int, end: int) -> int:
        mask = tables[source].columns["loss_mask"]
        begin = mask.spans(record)[0].start
        return int(np.count_nonzero(mask.values[begin + start : begin + end]))

    return trained


def _domains(store: Store, name: str) -> dict[str, Table]:
    return store.once(f"domains of {name}", lambda: _open_domains(store, name))


def _open_domains(store: Store, name: str) -> dict[str, Table]:
    """The token stores that a table was packed from: all configured domains with the split, in the table or not."""
    split = "train" if name == "sft_packed" else "dev"
    tables = {}
    for domain, content in sorted(store.recipe["tokens"].items()):
        tokens = store.above("sft_tokens", domain, content)
        if (tokens.directory / f"{split}.index").is_dir():
            tables[domain] = open_stream(tokens.directory, split)
    return tables


@of_each_table
def packed_mask(store: Store, packed: Table) -> Iterator[Verdict]:
    """Check every piece against its record."""
    tables = _domains(store, packed.name)
    yield check_pieces(packed, tables)
    if len(packed.images) or any(len(table.images) for table in tables.values()):
        yield record_files().check_packed(packed, tables)


@of_each_table
def packed_accounting(store: Store, packed: Table) -> Iterator[Verdict]:
    """Check the counts of a table against its rows. Without weights, epochs or limits, each token and image is in rows or counted as left out."""
    packing, claimed, domains = store.recipe["packing"], _claimed(store, packed.name), _domains(store, packed.name)
    left_out = int(claimed["tokens_left_out"])
    sources, tokens = _pieces(packed).domains, int(packed.lengths.sum())
    trained = nonzero(packed.columns["loss_mask"].values)
    totals = {"rows": len(packed), "tokens": tokens, "trained_tokens": trained}
    entries = {f"{each}_entries_left_out": count for each, count in list_entries(table.lists for table in domains.values()).items()}
    few = {"images": len(packed.images), **entries}
    known = {*totals, *few, *_PROVEN_BY_MIXTURE, "trained_fraction", *(f"share_{source}" for source in sources)}
    fault = wrong_claim({**totals, **few, "trained_fraction": trained / max(1, tokens)}, {**dict.fromkeys(few, 0), **claimed})
    if fault or (fault := "; ".join(unknown_counts(claimed, known))):
        pass
    elif not any(packing.get(key) for key in ("weights", "epochs", "max_items")):
        offered = sum(int(domains[source].lengths.sum()) for source in sources)
        if offered != totals["tokens"] + left_out:
            fault = f"the domains hold {offered:,} tokens, but {totals['tokens']:,} are packed and {left_out:,} counted as left out"
        images, without = sum(len(domains[source].images) for source in sources), int(claimed.get("images_left_out", 0))
        if not fault and images != len(packed.images) + without:
            fault = f"the domains hold {images:,} images, {len(packed.images):,} are in rows, {without:,} counted as left out"
    summary = f"{totals['rows']:,} rows hold {totals['tokens']:,} tokens, {trained:,} trained; {left_out:,} left out"
    yield Verdict(not fault, fault or summary, {**totals, "tokens_left_out": left_out}, Worst(packed.name, fault) if fault else None)
