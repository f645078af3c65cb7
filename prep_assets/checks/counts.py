"""The counts and metrics of a manifest, counted again from what the store holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from prep_assets.checks.sources_again import streams_of
from prep_assets.pipeline.asset import FromParts, FromRows, Store
from prep_assets.stores.arrays import argsort, equals_previous, stretches, take
from prep_assets.stores.groups import RUNS, GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.lists import list_entries
from prep_assets.stores.table import GROUPS, PAIRS, SIDES
from prep_assets.stores.tokens import TokenStore

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


def uncounted(store: Store) -> Sequence[str]:
    """Return the counts that a store cannot give again."""
    return [*UNCOUNTED, *(store.asset.source.uncounted if isinstance(store.asset.source, FromRows) else ())]


def stored_records(store: Store) -> int:
    """Count the records in a store."""
    if store.lines():
        return sum(_rows_of_lines(stream.held) if stream.several else len(stream) for stream in streams_of(store))
    counted = [stream for stream in streams_of(store) if not (store.holds(PAIRS) and stream.name.endswith(SIDES[1]))]
    return sum(int(stream.held.begins_row.sum()) if stream.several else len(stream) for stream in counted)


def _rows_of_lines(lines: Lines) -> int:
    """Count the rows that lines come from."""
    places = (take(lines.places, lines.of(number)) for number in range(len(lines.sources)))
    return sum(int(np.count_nonzero(~equals_previous(take(column, argsort(column))))) for column in places)


def recounted(store: Store) -> dict[str, int]:
    """Return every count of a manifest that the store gives again, beside read and kept records."""
    if files := store.lines():
        source = store.asset.source
        return _of_files(store, files) | _of_parts(store, source.counts if isinstance(source, FromParts) else ())
    held = {stream.name: stream.held for stream in streams_of(store)}
    totals = _of_groups(held) if store.holds(GROUPS) else _of_streams(held)
    return _of_parts(store, [*UNCOUNTED, *store.manifest.counts]) | totals


def _of_parts(store: Store, keys: Sequence[str]) -> dict[str, int]:
    """Return the sums of the parts of a merged store, for some counts; nothing for a store that merges none."""
    source, total = store.asset.source, Counter[str]()
    if isinstance(source, FromParts):
        parts = [store.above(source.assets[0], name) for name in store.domains]
        for part in (*parts, *map(store.above, source.assets[1:])):
            total.update({key: count for key, count in part.manifest.counts.items() if key in keys and isinstance(count, int)})
    return {key: count for key, count in total.items() if key not in ("read", "kept")}


def _of_files(store: Store, files: Mapping[str, Lines]) -> dict[str, int]:
    """Count the lines of each file, and what the asset counts of each line."""
    asset, stems = store.asset, {stream.stem: stream.counted for stream in store.asset.streams.values()}
    source = asset.source if isinstance(asset.source, FromRows) else None
    lists, counts = (source.lists, source.counts) if source else ((), {})
    counted = Counter(dict.fromkeys((*lists, *counts), 0))
    for row in chain.from_iterable(files.values()) if counted else ():
        counted.update({key: len(row.get(key, ())) for key in lists})
        counted.update({key: count(row) for key, count in counts.items()})
    return {**{stems[stem]: len(lines) for stem, lines in files.items()}, **counted}


def _of_streams(streams: Mapping[str, TokenStore]) -> dict[str, int]:
    """Count tokens, trained tokens, examples, and what belongs to them in token streams."""
    if not streams:
        return {}
    stores = streams.values()
    tokens = {name: len(stream.arrays["tokens"]) for name, stream in streams.items()}
    counts = {
        "tokens": sum(tokens.values()),
        "tokens_train": sum(count for name, count in tokens.items() if not name.endswith("dev")),
        "tokens_dev": sum(count for name, count in tokens.items() if name.endswith("dev")),
        "kept_dev": int(streams["dev"].begins_row.sum()) if "dev" in streams else 0,
        "kept_test": max((len(stream) for name, stream in streams.items() if name.startswith("test/")), default=0),
        "examples": sum(map(len, stores)),
        "images": sum(len(stream.images) for stream in stores),
        **{f"{name}_entries": count for name, count in list_entries(each.lists for each in stores).items()},
    }
    if all("loss_mask" in stream.arrays for stream in stores):
        counts["trained_tokens"] = sum(map(_trained, stores))
    return counts


def _of_groups(groups: Mapping[str, GroupStore]) -> dict[str, int]:
    """Count groups, responses, tokens, and runs of agents and those of several rows."""
    stores = groups.values()
    responses = [split.responses for split in stores]
    counts = {
        "train": sum(len(split) for name, split in groups.items() if name != "test"),
        "test": sum(len(split) for name, split in groups.items() if name == "test"),
        "responses": sum(map(len, responses)),
        "tokens": sum(split.prompts.tokens + split.responses.tokens for split in stores),
        "trained_tokens": sum(map(_trained, responses)),
    }
    rows = list[int]()
    for split in stores:
        if RUNS in split.rewards.arrays:
            of_group = np.repeat(np.arange(len(split)), split.rewards.lengths)
            pairs = np.stack([of_group, np.asarray(split.rewards.arrays[RUNS])])
            rows += np.unique(pairs, axis=1, return_counts=True)[1].tolist()
    return counts | ({"runs": len(rows), "runs_split": sum(number > 1 for number in rows)} if rows else {})


def _trained(stream: TokenStore) -> int:
    return nonzero(stream.arrays["loss_mask"])


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
