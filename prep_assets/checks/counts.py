"""The counts and metrics of a manifest, counted again from what the store holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from prep_assets.pipeline.asset import FromParts, FromRows, Store
from prep_assets.stores.arrays import argsort, compress, equals, equals_previous, stretches, take
from prep_assets.stores.groups import RESPONSES, RUNS
from prep_assets.stores.lists import list_entries
from prep_assets.stores.table import GROUPS, LINES, PAIRS, SIDES, Table

UNCOUNTED: Mapping[str, str] = {
    "control_tokens_in_content": "whether a token was typed only the texts of the source say",
    "images_cut_away": "images that truncation cuts away are in no record",
    "masks_of_their_own": "whether a row brings its mask only the source says",
    "reasoning_dropped_by_template": "reasoning that a template leaves out is in no record",
    "retokenized_otherwise": "the ids that the tokenizer gives for given ids are in no store",
    "sampled": "whether a response was given as ids only the source says",
    "tokenized_rows": "whether a row was given as ids only the source says",
    "tokens_cut_away": "tokens that truncation cuts away are in no record",
    "unserved_prompts": "the prompts that a server sends are in no record",
    "untemplated": "whether a chat template writes a role only the template says",
}
"""Counts that no store can give again, with the reason. Merged stores have the sum of their parts."""

NOT_OF_ALL = ("examples", "kept_dev", "kept_test", "tokens_train", "tokens_dev")
"""Counts that only some stores of tokens have. Any other that is not 0 must be in the manifest."""


def uncounted(store: Store) -> Sequence[str]:
    """Return the counts that a store cannot give again."""
    return [*UNCOUNTED, *(store.asset.source.uncounted if isinstance(store.asset.source, FromRows) else ())]


def stored_records(store: Store) -> int:
    """Count the records in a store."""
    counted = [table for name, table in store.streams().items() if not (store.holds(PAIRS) and name.endswith(SIDES[1]))]
    return sum(_rows_of(table) if table.origins.several else len(table) for table in counted)


def _rows_of(table: Table) -> int:
    """Count the rows that records come from; those of lines may be shuffled."""
    origins = table.origins
    if table.path is None:
        return int(origins.begins_row.sum())
    places = (take(origins.places, compress(equals(origins.domain, number))) for number in range(len(origins.domains)))
    return sum(int(np.count_nonzero(~equals_previous(take(column, argsort(column))))) for column in places)


def recounted(store: Store) -> dict[str, int]:
    """Return every count of a manifest that the store gives again, beside read and kept records."""
    source, tables = store.asset.source, store.streams()
    if store.holds(LINES):
        return _of_files(store, tables) | _of_parts(store, source.counts if isinstance(source, FromParts) else ())
    totals = _of_groups(tables) if store.holds(GROUPS) else _of_streams(tables)
    counted = _of_parts(store, [*UNCOUNTED, *store.manifest.counts]) | totals
    return {key: count for key, count in counted.items() if key in store.manifest.counts or key not in NOT_OF_ALL}


def _of_parts(store: Store, keys: Sequence[str]) -> dict[str, int]:
    """Return the sums of the parts of a merged store, for some counts; nothing for a store that merges none."""
    source, total = store.asset.source, Counter[str]()
    if isinstance(source, FromParts):
        parts = [store.above(source.assets[0], name) for name in store.domains]
        for part in (*parts, *map(store.above, source.assets[1:])):
            total.update({key: count for key, count in part.manifest.counts.items() if key in keys and isinstance(count, int)})
    return {key: count for key, count in total.items() if key not in ("read", "kept")}


def _of_files(store: Store, files: Mapping[str, Table]) -> dict[str, int]:
    """Count the lines of each file, and what the asset counts of each line."""
    asset, stems = store.asset, {stream.stem: stream.counted for stream in store.asset.streams.values()}
    source = asset.source if isinstance(asset.source, FromRows) else None
    lists, counts = (source.lists, source.counts) if source else ((), {})
    counted = Counter(dict.fromkeys((*lists, *counts), 0))
    for row in chain.from_iterable(files.values()) if counted else ():
        counted.update({key: len(row.get(key, ())) for key in lists})
        counted.update({key: count(row) for key, count in counts.items()})
    return {**{stems[stem]: len(lines) for stem, lines in files.items()}, **counted}


def _of_streams(streams: Mapping[str, Table]) -> dict[str, int]:
    """Count tokens, trained tokens, examples, and what belongs to them in token streams."""
    stores = streams.values()
    tokens = {name: _tokens(stream) for name, stream in streams.items()}
    counts = {
        "tokens": sum(tokens.values()),
        "tokens_train": sum(count for name, count in tokens.items() if not name.endswith("dev")),
        "tokens_dev": sum(count for name, count in tokens.items() if name.endswith("dev")),
        "kept_dev": int(streams["dev"].origins.begins_row.sum()) if "dev" in streams else 0,
        "kept_test": max((len(stream) for name, stream in streams.items() if name.startswith("test/")), default=0),
        "examples": sum(map(len, stores)),
        "images": sum(len(stream.images) for stream in stores),
        **{f"{name}_entries": count for name, count in list_entries(each.lists for each in stores).items()},
    }
    if all(stream.has("weight") for stream in stores):
        counts["trained_tokens"] = sum(map(_trained, stores))
    return counts


def _of_groups(groups: Mapping[str, Table]) -> dict[str, int]:
    """Count groups, responses, tokens, and runs of agents and those of several rows."""
    stores = groups.values()
    counts = {
        "train": sum(len(split) for name, split in groups.items() if name != "test"),
        "test": sum(len(split) for name, split in groups.items() if name == "test"),
        "responses": sum(len(split.columns[RESPONSES].ends) for split in stores),
        "tokens": sum(map(_tokens, stores)),
        "trained_tokens": sum(map(_trained, stores)),
    }
    rows = list[int]()
    for runs in (split.columns[RUNS] for split in stores if RUNS in split.columns):
        pairs = np.stack([np.repeat(np.arange(len(runs.ends)), runs.lengths()), np.asarray(runs.values)])
        rows += np.unique(pairs, axis=1, return_counts=True)[1].tolist()
    return counts | ({"runs": len(rows), "runs_split": sum(number > 1 for number in rows)} if rows else {})


def _tokens(table: Table) -> int:
    return sum(len(table.columns[name].values) for name in table.has("ids"))


def _trained(table: Table) -> int:
    return sum(nonzero(table.columns[name].values) for name in table.has("weight"))


def nonzero(values: Any) -> int:
    """How many values of a column are not 0."""
    return sum(int(np.count_nonzero(values[part])) for part in stretches(len(values), 1 << 20))


def metrics_again(store: Store) -> dict[str, float]:
    """Return the metrics that a manifest must have, from its counts, which are proven."""
    counts: Mapping[str, Any] = store.manifest.counts
    if store.asset.name == "sft_tokens":
        return {"trained_fraction": counts["trained_tokens"] / max(1, counts["tokens"])}
    if store.asset.name == "pretrain_tokens":
        return {"tokens_per_document": counts["tokens"] / max(1, counts["kept"])}
    return {}
